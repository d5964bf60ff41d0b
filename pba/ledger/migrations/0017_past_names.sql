-- Former names that a part of the past still has: it is renamed in parts, so that cycles go on.

CREATE TABLE past_name (
    name    TEXT PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES project (id),
    before  INTEGER NOT NULL -- what ended before has the name still
) STRICT, WITHOUT ROWID;
