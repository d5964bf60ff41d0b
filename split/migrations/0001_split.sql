-- The split itself: its definition, the state of its core, and of its input.
CREATE TABLE split (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- A task is a range of items that went to a host. first counts from 0. state: 0 open,
-- 1 done, 2 returned, 3 its only item kills it. job is 0 while it is not known. Times
-- are UNIX nanoseconds; began and ended are by the host's clock.
CREATE TABLE task (
    n         INTEGER PRIMARY KEY,
    round     INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    kills     INTEGER NOT NULL,
    host      TEXT NOT NULL,
    state     INTEGER NOT NULL,
    took      INTEGER NOT NULL DEFAULT 0,
    job       INTEGER NOT NULL DEFAULT 0,
    submitted INTEGER NOT NULL DEFAULT 0,
    began     INTEGER NOT NULL DEFAULT 0,
    ended     INTEGER NOT NULL DEFAULT 0,
    seen      INTEGER NOT NULL DEFAULT 0
);

-- Rounds that have ended.
CREATE TABLE round (
    n      INTEGER PRIMARY KEY,
    began  INTEGER NOT NULL,
    ended  INTEGER NOT NULL,
    gap    REAL NOT NULL,
    first  TEXT NOT NULL,
    last   TEXT NOT NULL,
    under  INTEGER NOT NULL
);

-- Hosts that took part, with what was measured there (JSON).
CREATE TABLE host (
    name     TEXT PRIMARY KEY,
    slots    INTEGER NOT NULL,
    measures TEXT NOT NULL
) WITHOUT ROWID;
