-- The pools' standing as published last to the submit filter. An edit of the plan
-- publishes it again: it knows neither the pools' standing nor when the engine last ran.

CREATE TABLE standing (
    id   INTEGER PRIMARY KEY CHECK (id = 1), -- one row, or none before the first cycle
    told TEXT NOT NULL                       -- JSON
) STRICT;
