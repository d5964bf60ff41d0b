-- What kept jobs from starting, added up per hour, for reports (R46): of the time that cycles saw.

CREATE TABLE wait_hour (
    hour    INTEGER NOT NULL,
    cause   TEXT NOT NULL,    -- slots, memory, resource, rules or other
    name    TEXT NOT NULL,    -- of the resource; '': hosts that suit the jobs, and other causes; '*': of all beyond the rows that an hour may have
    waited  INTEGER NOT NULL, -- slot-milliseconds of the jobs
    seen    INTEGER NOT NULL, -- milliseconds in which any of them waited
    free    INTEGER NOT NULL, -- slot-milliseconds that were free meanwhile
    lacking INTEGER NOT NULL, -- milliseconds times MiB of memory that lacked beside them
    hosts   INTEGER NOT NULL, -- milliseconds times hosts that lacked it
    PRIMARY KEY (hour, cause, name)
) STRICT, WITHOUT ROWID;
