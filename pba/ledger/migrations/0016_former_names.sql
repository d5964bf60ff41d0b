-- Former names of projects that unfinished jobs may still have.

CREATE TABLE former_name (
    name    TEXT PRIMARY KEY,
    project INTEGER NOT NULL REFERENCES project (id),
    until   INTEGER NOT NULL -- when the project was renamed
) STRICT, WITHOUT ROWID;
