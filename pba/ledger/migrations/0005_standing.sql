-- What the submit filter was told last of how things stand: an edit of the plan tells
-- it again, and knows of neither the pools nor the engine's life.

CREATE TABLE standing (
    id   INTEGER PRIMARY KEY CHECK (id = 1), -- one row, or none before the first cycle
    told TEXT NOT NULL                       -- JSON
) STRICT;
