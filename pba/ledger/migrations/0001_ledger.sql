-- Times are nanoseconds since 1970 in UTC, 0 for none; durations are nanoseconds.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY, -- paused, last_cycle, last_action, next_reclaim, ended_since
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The plan, edited by managers and administrators.

CREATE TABLE project (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    unix_group TEXT NOT NULL,
    removed    INTEGER NOT NULL DEFAULT 0 -- when; its past weeks stay for reports
) STRICT;
CREATE UNIQUE INDEX project_name ON project (name) WHERE removed = 0;

CREATE TABLE manager (
    project INTEGER NOT NULL REFERENCES project (id),
    user    TEXT NOT NULL,
    PRIMARY KEY (project, user)
) STRICT, WITHOUT ROWID;

-- A pool outlives its weeks: a job keeps its room, and its clock, over Monday.
CREATE TABLE pool (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    project INTEGER NOT NULL REFERENCES project (id),
    user    TEXT NOT NULL, -- '': every user
    step    TEXT NOT NULL, -- '': every step
    UNIQUE (project, user, step)
) STRICT;

CREATE TABLE allocation (
    pool  INTEGER NOT NULL REFERENCES pool (id),
    year  INTEGER NOT NULL, -- ISO year and week
    week  INTEGER NOT NULL CHECK (week BETWEEN 1 AND 53),
    slots INTEGER NOT NULL CHECK (slots > 0),
    PRIMARY KEY (pool, year, week)
) STRICT, WITHOUT ROWID;
CREATE INDEX allocation_week ON allocation (year, week);

CREATE TABLE edit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    who     TEXT NOT NULL, -- the identity that the system gave
    what    TEXT NOT NULL, -- project add, alloc set, pause …
    subject TEXT NOT NULL,
    before  TEXT NOT NULL,
    after   TEXT NOT NULL
) STRICT;

-- What one cycle passes to the next.

CREATE TABLE job_memory (
    job            INTEGER NOT NULL,
    idx            INTEGER NOT NULL,
    pool           INTEGER NOT NULL,
    entered        INTEGER NOT NULL,
    kept           INTEGER NOT NULL,
    clock          INTEGER NOT NULL,
    clock_seen     INTEGER NOT NULL,
    requeues       INTEGER NOT NULL,
    expired        INTEGER NOT NULL,
    backoff        INTEGER NOT NULL,
    written        INTEGER NOT NULL,
    written_at     INTEGER NOT NULL,
    reserved       TEXT NOT NULL, -- JSON: hosts; '' if none
    reserved_until INTEGER NOT NULL,
    history        TEXT NOT NULL, -- JSON; '' if none
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_time (
    pool BLOB NOT NULL,    -- plan.Allocation.Key
    ord  INTEGER NOT NULL, -- 0 is the oldest
    job  INTEGER NOT NULL,
    idx  INTEGER NOT NULL,
    ran  INTEGER NOT NULL,
    PRIMARY KEY (pool, ord)
) STRICT, WITHOUT ROWID;

CREATE TABLE reclaim (
    id      INTEGER PRIMARY KEY,
    job     INTEGER NOT NULL, -- the beneficiary
    idx     INTEGER NOT NULL,
    project TEXT NOT NULL,
    user    TEXT NOT NULL,
    need    INTEGER NOT NULL,
    hosts   TEXT NOT NULL, -- JSON
    phase   TEXT NOT NULL,
    why     TEXT NOT NULL,
    planned INTEGER NOT NULL,
    acted   INTEGER NOT NULL,
    freed   INTEGER NOT NULL,
    ended   INTEGER NOT NULL
) STRICT;
CREATE INDEX reclaim_ended ON reclaim (ended);
CREATE INDEX reclaim_job ON reclaim (job, idx);

CREATE TABLE victim (
    reclaim  INTEGER NOT NULL REFERENCES reclaim (id),
    ord      INTEGER NOT NULL,
    job      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    project  TEXT NOT NULL,
    user     TEXT NOT NULL,
    started  INTEGER NOT NULL,
    slots    INTEGER NOT NULL,
    mode     TEXT NOT NULL,
    ran_for  INTEGER NOT NULL,
    fate     TEXT NOT NULL,
    released INTEGER NOT NULL,
    PRIMARY KEY (reclaim, ord)
) STRICT, WITHOUT ROWID;
CREATE INDEX victim_job ON victim (job, idx);

-- Cycles and their actions.

CREATE TABLE cycle (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    who      TEXT NOT NULL,
    mode     TEXT NOT NULL,    -- live, observe, restore
    started  INTEGER NOT NULL,
    snapshot INTEGER NOT NULL, -- by the queue's clock
    finished INTEGER NOT NULL, -- 0: it never came to its end
    actions  INTEGER NOT NULL,
    skipped  INTEGER NOT NULL,
    note     TEXT NOT NULL
) STRICT;

CREATE TABLE action (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    cycle    INTEGER NOT NULL REFERENCES cycle (id),
    ord      INTEGER NOT NULL, -- in its plan
    verb     TEXT NOT NULL,
    job      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    for_job  INTEGER NOT NULL, -- 0: for none
    for_idx  INTEGER NOT NULL,
    reclaim  INTEGER NOT NULL, -- 0: belongs to none
    priority INTEGER NOT NULL,
    hosts    TEXT NOT NULL,
    queue    TEXT NOT NULL,
    until    INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    outcome  TEXT NOT NULL, -- intended, would, done, failed, gone, left out
    error    TEXT NOT NULL,
    at       INTEGER NOT NULL -- of the outcome
) STRICT;
CREATE UNIQUE INDEX action_order ON action (cycle, ord);
CREATE INDEX action_job ON action (job, idx);

-- Actions that observe mode has recorded as intended: each once, not in every cycle.
CREATE TABLE would (
    verb    TEXT NOT NULL,
    job     INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    for_job INTEGER NOT NULL,
    for_idx INTEGER NOT NULL,
    PRIMARY KEY (verb, job, idx, for_job, for_idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE ended_job (
    job       INTEGER NOT NULL,
    idx       INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    user      TEXT NOT NULL,
    project   TEXT NOT NULL,
    step      TEXT NOT NULL,
    slots     INTEGER NOT NULL,
    started   INTEGER NOT NULL, -- of its last run
    ended     INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    requeues  INTEGER NOT NULL,
    waited    INTEGER NOT NULL, -- from submission to the start of its last run, or to its end
    class     TEXT NOT NULL,    -- pba, normal
    pool      INTEGER NOT NULL,
    memory    TEXT NOT NULL,    -- JSON: what the engine remembered of it; '' if nothing
    PRIMARY KEY (job, idx, submitted)
) STRICT, WITHOUT ROWID;
CREATE INDEX ended_job_ended ON ended_job (ended);

CREATE TABLE user_groups (
    user      TEXT PRIMARY KEY,
    groups    TEXT NOT NULL, -- JSON
    looked_up INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
