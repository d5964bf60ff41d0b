CREATE TABLE places (
  queue TEXT NOT NULL, job INTEGER NOT NULL, element INTEGER NOT NULL, -- 0: no element of an array
  host TEXT NOT NULL, -- that holds the job's state object
  run INTEGER NOT NULL, n INTEGER NOT NULL, -- its sequence there
  live INTEGER NOT NULL, -- 1: the run has not ended there
  PRIMARY KEY (queue, job, element, host)
) WITHOUT ROWID, STRICT;
