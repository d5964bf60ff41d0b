package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/allotment-hpc/allotment/esub"
)

// Standing is what each cycle publishes for the submit filter.
type Standing struct {
	esub.Standing
	Heavy *esub.Heavy // which jobs wait for dummy jobs; nil: as published before
}

// SetStanding records what is about to be published, and returns it. Where s says
// nothing of heavy jobs, it keeps what was published of them before.
func (l *Ledger) SetStanding(ctx context.Context, s Standing) (Standing, error) {
	err := l.tx(ctx, "record the pools' standing", func(tx *sql.Tx) error {
		if s.Heavy == nil {
			last, err := standing(ctx, tx)
			if err != nil {
				return err
			}
			s.Heavy = last.Heavy
		}
		encoded, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO standing (id, told) VALUES (1, ?)`, string(encoded))
		return err
	})
	return s, err
}

// Standing returns what was published last: the zero Standing if nothing.
func (l *Ledger) Standing(ctx context.Context) (s Standing, err error) {
	err = l.tx(ctx, "read the pools' standing", func(tx *sql.Tx) (err error) {
		s, err = standing(ctx, tx)
		return err
	})
	return s, err
}

func standing(ctx context.Context, q querier) (Standing, error) {
	var (
		s       Standing
		encoded []byte
	)
	err := q.QueryRowContext(ctx, `SELECT told FROM standing`).Scan(&encoded)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(encoded, &s)
}
