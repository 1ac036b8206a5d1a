CREATE TABLE schema_reach (
    oldest TEXT NOT NULL
);
INSERT INTO schema_reach (oldest) VALUES ('0011');
CREATE TABLE card_names (
    node TEXT NOT NULL,
    card TEXT NOT NULL,
    number INTEGER NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (node, card)
);
CREATE UNIQUE INDEX card_names_number ON card_names (node, number, since);
UPDATE alembic_version SET version_num = '0012';
