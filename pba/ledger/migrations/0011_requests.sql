-- Slots that members of projects ask for, and what became of their requests.

CREATE TABLE request (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    project    INTEGER NOT NULL REFERENCES project (id),
    user       TEXT NOT NULL, -- of the pool; '': every user
    step       TEXT NOT NULL, -- '': every step
    hosts      TEXT NOT NULL, -- a host set; '': the hosts in none
    slots      INTEGER NOT NULL CHECK (slots > 0), -- that the pool shall have in each week
    first_year INTEGER NOT NULL, -- ISO year and week
    first_week INTEGER NOT NULL,
    last_year  INTEGER NOT NULL,
    last_week  INTEGER NOT NULL,
    why        TEXT NOT NULL,
    uid        INTEGER NOT NULL, -- of the user who asks
    who        TEXT NOT NULL,    -- the user's name
    asked      INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('open', 'granted', 'declined', 'withdrawn', 'expired')),
    answer     TEXT NOT NULL,    -- why it is declined
    answerer   TEXT NOT NULL,    -- the identity that the system gave; '': not answered
    answered   INTEGER NOT NULL
) STRICT;
CREATE INDEX request_state ON request (state, answered);
CREATE INDEX request_uid ON request (uid, asked);
