-- Flows name the steps that jobs of their projects may name.

CREATE TABLE flow (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE flow_step (
    flow INTEGER NOT NULL REFERENCES flow (id) ON DELETE CASCADE,
    ord  INTEGER NOT NULL, -- in the flow, from 0
    step TEXT NOT NULL,
    PRIMARY KEY (flow, ord),
    UNIQUE (flow, step)
) STRICT, WITHOUT ROWID;

ALTER TABLE project ADD COLUMN flow INTEGER REFERENCES flow (id); -- NULL: its jobs may name any step

-- What slots are promised for, and what was taken off in mid-week.

CREATE TABLE allocation_2 (
    pool       INTEGER NOT NULL REFERENCES pool (id),
    year       INTEGER NOT NULL, -- ISO year and week
    week       INTEGER NOT NULL CHECK (week BETWEEN 1 AND 53),
    slots      INTEGER NOT NULL CHECK (slots >= 0), -- 0: taken back in mid-week
    sla        TEXT NOT NULL CHECK (sla IN ('velocity', 'throughput')),
    jobs       INTEGER NOT NULL CHECK (jobs >= 0 AND (jobs > 0) = (sla = 'throughput')), -- to be done in the week
    lowered    INTEGER NOT NULL CHECK (lowered >= 0), -- slots taken off in mid-week
    lowered_at INTEGER NOT NULL, -- when last
    PRIMARY KEY (pool, year, week)
) STRICT, WITHOUT ROWID;
INSERT INTO allocation_2 SELECT pool, year, week, slots, 'velocity', 0, 0, 0 FROM allocation;
DROP TABLE allocation;
ALTER TABLE allocation_2 RENAME TO allocation;
CREATE INDEX allocation_week ON allocation (year, week);

-- What is remembered of the week of a pool with a throughput SLA.

CREATE TABLE throughput (
    pool         INTEGER PRIMARY KEY,
    week         INTEGER NOT NULL, -- its begin
    finished     INTEGER NOT NULL,
    slot_seconds REAL NOT NULL,
    guarantee    INTEGER NOT NULL,
    fell         INTEGER NOT NULL
) STRICT;
