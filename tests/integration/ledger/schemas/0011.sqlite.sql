CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE accounts (
    queue TEXT NOT NULL,
    resource TEXT NOT NULL,
    pending BIGINT NOT NULL,
    posted BIGINT NOT NULL,
    PRIMARY KEY (queue, resource),
    CONSTRAINT accounts_not_negative CHECK (pending >= 0 AND posted >= 0)
);
CREATE TABLE audit (
    seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    at DOUBLE NOT NULL,
    actor TEXT NOT NULL,
    subject TEXT NOT NULL,
    change TEXT NOT NULL,
    cause TEXT NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (seq)
);
CREATE TABLE card_accounts (
    node TEXT NOT NULL,
    card INTEGER NOT NULL,
    cores BIGINT NOT NULL,
    memory_mib BIGINT NOT NULL,
    pods BIGINT NOT NULL,
    whole BIGINT NOT NULL,
    forced BIGINT NOT NULL,
    size_mib BIGINT NOT NULL,
    shares BIGINT NOT NULL,
    PRIMARY KEY (node, card),
    CONSTRAINT card_accounts_none_below_zero CHECK (cores >= 0 AND memory_mib >= 0 AND pods >= 0 AND whole >= 0 AND forced >= 0),
    CONSTRAINT card_accounts_not_overbooked CHECK (forced > 0 OR pods = 0 OR (cores <= 100 AND memory_mib <= size_mib AND pods <= shares AND (whole = 0 OR pods = 1)))
);
CREATE TABLE claims (
    id TEXT NOT NULL,
    pod_uid TEXT NOT NULL,
    namespace TEXT NOT NULL,
    pod TEXT NOT NULL,
    job TEXT NOT NULL,
    "plan" TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority BIGINT NOT NULL,
    node TEXT NOT NULL,
    requests TEXT NOT NULL,
    slices TEXT NOT NULL,
    slots TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    generation INTEGER NOT NULL,
    intent TEXT NOT NULL,
    intent_reason TEXT NOT NULL,
    resource_version TEXT NOT NULL,
    deadline DOUBLE NOT NULL,
    forced BOOLEAN NOT NULL,
    traceparent TEXT NOT NULL,
    changed_at DOUBLE NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT claims_state CHECK (state IN ('pending', 'posted', 'void'))
);
CREATE UNIQUE INDEX claims_pod ON claims (pod_uid) WHERE state <> 'void';
CREATE INDEX claims_void ON claims (changed_at) WHERE state = 'void';
CREATE TABLE gangs (
    job TEXT NOT NULL,
    min_member INTEGER NOT NULL,
    deadline DOUBLE NOT NULL,
    unwinding BOOLEAN NOT NULL,
    finished INTEGER NOT NULL,
    PRIMARY KEY (job)
);
CREATE TABLE inbox (
    consumer TEXT NOT NULL,
    message TEXT NOT NULL,
    at DOUBLE NOT NULL,
    result BLOB NOT NULL,
    PRIMARY KEY (consumer, message)
);
CREATE INDEX inbox_at ON inbox (at);
CREATE TABLE ledger (
    id INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    idx BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ledger_one CHECK (id = 1)
);
CREATE TABLE outbox (
    epoch BIGINT NOT NULL,
    number BIGINT NOT NULL,
    type TEXT NOT NULL,
    keys TEXT NOT NULL,
    body BLOB NOT NULL,
    traceparent TEXT NOT NULL,
    PRIMARY KEY (epoch, number)
);
CREATE TABLE plan_answers (
    "plan" TEXT NOT NULL,
    scheduler TEXT NOT NULL,
    job TEXT NOT NULL,
    committed BOOLEAN NOT NULL,
    reason TEXT,
    message TEXT NOT NULL,
    refresh BIGINT NOT NULL,
    at DOUBLE NOT NULL,
    PRIMARY KEY ("plan")
);
CREATE INDEX plan_answers_at ON plan_answers (at);
CREATE TABLE queues (
    name TEXT NOT NULL,
    phase TEXT NOT NULL,
    capability TEXT NOT NULL,
    weight BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    gone BOOLEAN NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE transfers (
    seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    idx BIGINT NOT NULL,
    at DOUBLE NOT NULL,
    queue TEXT NOT NULL,
    resource TEXT NOT NULL,
    debit TEXT NOT NULL,
    credit TEXT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (seq),
    CONSTRAINT transfers_move_something CHECK (amount > 0 AND debit <> credit)
);
CREATE TABLE card_slots (
    claim TEXT NOT NULL,
    card INTEGER NOT NULL,
    node TEXT NOT NULL,
    slot INTEGER NOT NULL,
    live BOOLEAN NOT NULL,
    PRIMARY KEY (claim, card),
    FOREIGN KEY(claim) REFERENCES claims (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX card_slots_slot ON card_slots (node, card, slot) WHERE live AND slot >= 0;
CREATE TRIGGER transfers_no_update BEFORE UPDATE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers is append-only'); END;
CREATE TRIGGER transfers_no_delete BEFORE DELETE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers is append-only'); END;
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
ALTER TABLE claims ADD COLUMN min_member INTEGER DEFAULT '1' NOT NULL;
ALTER TABLE claims ADD COLUMN preemptable BOOLEAN DEFAULT 1 NOT NULL;
ALTER TABLE claims ADD COLUMN created_at DOUBLE DEFAULT '0' NOT NULL;
ALTER TABLE queues ADD COLUMN rules TEXT DEFAULT '{}' NOT NULL;
ALTER TABLE ledger ADD COLUMN metered_until BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE claims ADD COLUMN claimed_at DOUBLE DEFAULT '0' NOT NULL;
ALTER TABLE claims ADD COLUMN cards TEXT DEFAULT '{}' NOT NULL;
ALTER TABLE audit ADD COLUMN entry TEXT DEFAULT '' NOT NULL;
ALTER TABLE accounts ADD COLUMN borrowed BIGINT NOT NULL DEFAULT 0 CONSTRAINT accounts_borrowed CHECK (borrowed >= 0 AND borrowed <= pending + posted);
CREATE TABLE usage (
    hour BIGINT NOT NULL,
    queue TEXT NOT NULL,
    namespace TEXT NOT NULL,
    model TEXT NOT NULL,
    own BIGINT NOT NULL,
    borrowed BIGINT NOT NULL,
    idle BIGINT NOT NULL,
    PRIMARY KEY (hour, queue, namespace, model),
    CONSTRAINT usage_not_negative CHECK (own >= 0 AND borrowed >= 0 AND idle >= 0)
);
CREATE TRIGGER transfers_no_replace BEFORE INSERT ON transfers WHEN EXISTS (SELECT 1 FROM transfers WHERE seq >= NEW.seq) BEGIN SELECT RAISE(ABORT, 'transfers is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq >= NEW.seq) BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
ALTER TABLE claims ADD COLUMN models TEXT DEFAULT '{}' NOT NULL;
ALTER TABLE ledger ADD COLUMN "key" BLOB;
CREATE TABLE nominations (
    "plan" TEXT NOT NULL,
    until DOUBLE NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY ("plan")
);
ALTER TABLE claims ADD COLUMN pool TEXT DEFAULT '' NOT NULL;
ALTER TABLE claims ADD COLUMN protected_until DOUBLE DEFAULT '0' NOT NULL;
ALTER TABLE claims ADD COLUMN rank INTEGER DEFAULT '-1' NOT NULL;
ALTER TABLE claims ADD COLUMN layout TEXT DEFAULT '' NOT NULL;
INSERT INTO alembic_version (version_num) VALUES ('0011');
