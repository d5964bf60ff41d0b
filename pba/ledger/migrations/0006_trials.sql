-- Jobs that are pinned to full hosts until the queue has considered them there, and those
-- that it refused to consider there.

CREATE TABLE trial (
    job      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    hosts    TEXT NOT NULL,    -- JSON; null: no trial goes on
    pinned   INTEGER NOT NULL, -- Unix time in ns; 0: the queue did not show the pin yet
    refusals INTEGER NOT NULL,
    until    INTEGER NOT NULL, -- Unix time in ns; no other trial before
    why      TEXT NOT NULL,    -- of the last refusal
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;
