ALTER TABLE claims ADD COLUMN volume_claims TEXT DEFAULT '' NOT NULL;
UPDATE alembic_version SET version_num = '0013';
