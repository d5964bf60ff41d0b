-- What was used, added up per hour, for reports. Amounts are slot-milliseconds
-- of the time that cycles saw.

CREATE TABLE farm_hour (
    hour      INTEGER PRIMARY KEY, -- its start
    seen      INTEGER NOT NULL,    -- milliseconds
    slots     INTEGER NOT NULL,    -- of managed hosts that were up
    down      INTEGER NOT NULL,
    pba       INTEGER NOT NULL,    -- run by jobs that are charged to pools
    normal    INTEGER NOT NULL,    -- run by all others
    suspended INTEGER NOT NULL
) STRICT;

CREATE TABLE use_hour (
    hour       INTEGER NOT NULL,
    pool       INTEGER NOT NULL, -- 0: beyond the pools
    project    TEXT NOT NULL,    -- '': of a user's jobs that are not entitled
    user       TEXT NOT NULL,    -- of the pool, or of those jobs
    step       TEXT NOT NULL,
    guaranteed INTEGER NOT NULL,
    used       INTEGER NOT NULL,
    waiting    INTEGER NOT NULL, -- slots of jobs that had room in the pool and did not run
    PRIMARY KEY (hour, pool, project, user, step)
) STRICT, WITHOUT ROWID;

-- How long a reclaim's beneficiary had waited when it was planned.
ALTER TABLE reclaim ADD COLUMN entered INTEGER NOT NULL DEFAULT 0; -- since when it held room
ALTER TABLE reclaim ADD COLUMN clock INTEGER NOT NULL DEFAULT 0;   -- as R14 counts

-- Reclaims that were too old to be kept, so that counters never go back.
CREATE TABLE forgotten (
    phase    TEXT PRIMARY KEY,
    reclaims INTEGER NOT NULL,
    need     INTEGER NOT NULL, -- slots
    taken    INTEGER NOT NULL  -- slots
) STRICT, WITHOUT ROWID;
