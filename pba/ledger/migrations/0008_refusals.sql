-- A trial that the queue refused is remembered for its hosts. Trials are begun anew.

DROP TABLE trial;
CREATE TABLE trial (
    job     INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    hosts   TEXT NOT NULL,    -- JSON; empty: no trial goes on
    pinned  INTEGER NOT NULL, -- Unix time in ns; 0: the queue did not show the pin yet
    refused TEXT NOT NULL,    -- JSON: trials that the queue refused
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;
