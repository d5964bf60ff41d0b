-- For which pool slots were taken back: one that is served within seconds has only twice its
-- slots taken back so within an hour.

ALTER TABLE reclaim ADD COLUMN pool INTEGER NOT NULL DEFAULT 0; -- 0: not known
