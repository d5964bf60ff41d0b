-- The change of the log that granted a request, or whose undoing opened it again.

ALTER TABLE request ADD COLUMN change INTEGER NOT NULL DEFAULT 0; -- 0: none
UPDATE request SET change = COALESCE((SELECT MAX(e.change) FROM edit e
    WHERE e.what = 'alloc grant' AND e.subject GLOB 'request ' || request.id || ' *'), 0) WHERE state = 'granted';
