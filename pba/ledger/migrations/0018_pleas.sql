-- What hosts that lack memory ask for (R47), as each asked last; and what a job that was requeued for that is to ask for.

CREATE TABLE plea (
    host   TEXT NOT NULL,
    job    INTEGER NOT NULL, -- as the host knows it
    idx    INTEGER NOT NULL,
    verb   TEXT NOT NULL,
    used   INTEGER NOT NULL, -- bytes, there
    frozen INTEGER NOT NULL, -- ns for which it was
    heard  INTEGER NOT NULL,
    PRIMARY KEY (host, job, idx)
) STRICT, WITHOUT ROWID;

ALTER TABLE job_memory ADD COLUMN grew INTEGER NOT NULL DEFAULT 0;    -- bytes over all slots
ALTER TABLE job_memory ADD COLUMN grew_at INTEGER NOT NULL DEFAULT 0;
