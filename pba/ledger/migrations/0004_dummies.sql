-- What is remembered of heavy jobs that wait for their dummy jobs, and of light
-- jobs that have the slot of one assigned.

CREATE TABLE gather (
    job     INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    host    TEXT NOT NULL,    -- '': none now
    since   INTEGER NOT NULL, -- on that host
    backoff INTEGER NOT NULL, -- it does not gather before
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE light (
    job     INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    for_job INTEGER NOT NULL, -- the heavy job
    for_idx INTEGER NOT NULL,
    host    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

ALTER TABLE action ADD COLUMN dummies INTEGER NOT NULL DEFAULT 0; -- dummy jobs to be placed or ended
