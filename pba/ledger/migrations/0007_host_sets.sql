-- A pool may be limited to a host set of the config: it is another pool than the
-- project's on the other hosts. SQLite can't change a table's UNIQUE, so both tables are
-- made anew.

CREATE TABLE pool_2 (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    project INTEGER NOT NULL REFERENCES project (id),
    user    TEXT NOT NULL, -- '': every user
    step    TEXT NOT NULL, -- '': every step
    hosts   TEXT NOT NULL, -- a host set; '': the hosts in none
    UNIQUE (project, user, step, hosts)
) STRICT;
INSERT INTO pool_2 SELECT id, project, user, step, '' FROM pool;

CREATE TABLE allocation_2 (
    pool       INTEGER NOT NULL REFERENCES pool_2 (id),
    year       INTEGER NOT NULL, -- ISO year and week
    week       INTEGER NOT NULL CHECK (week BETWEEN 1 AND 53),
    slots      INTEGER NOT NULL CHECK (slots >= 0), -- 0: taken back in mid-week
    sla        TEXT NOT NULL CHECK (sla IN ('velocity', 'throughput')),
    jobs       INTEGER NOT NULL CHECK (jobs >= 0 AND (jobs > 0) = (sla = 'throughput')), -- to be done in the week
    lowered    INTEGER NOT NULL CHECK (lowered >= 0), -- slots taken off in mid-week
    lowered_at INTEGER NOT NULL, -- when last
    PRIMARY KEY (pool, year, week)
) STRICT, WITHOUT ROWID;
INSERT INTO allocation_2 SELECT pool, year, week, slots, sla, jobs, lowered, lowered_at FROM allocation;
DROP TABLE allocation;
DROP TABLE pool;
ALTER TABLE pool_2 RENAME TO pool;
ALTER TABLE allocation_2 RENAME TO allocation;
CREATE INDEX allocation_week ON allocation (year, week);
