package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"strings"

	_ "github.com/mattn/go-sqlite3"
	"github.com/rogpeppe/go-internal/testscript"
)

// sqlite runs a query on a database: by the sqlite3 shell where there is one, else by the
// library.
func sqlite(ts *testscript.TestScript, _ bool, args []string) {
	file, query := ts.MkAbs(args[0]), args[1]
	if shell, err := exec.LookPath("sqlite3"); err == nil {
		ts.Check(ts.Exec(shell, file, query))
		return
	}
	db, err := sql.Open("sqlite3", "file:"+file+"?mode=ro")
	ts.Check(err)
	defer func() { _ = db.Close() }()
	if query == ".schema" {
		query = "SELECT sql FROM sqlite_schema"
	}
	rows, err := db.QueryContext(context.Background(), query)
	ts.Check(err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	ts.Check(err)
	var out strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(string)
		}
		ts.Check(rows.Scan(values...))
		for i, v := range values {
			if i > 0 {
				out.WriteByte('|')
			}
			fmt.Fprint(&out, *v.(*string))
		}
		out.WriteByte('\n')
	}
	ts.Check(rows.Err())
	fmt.Fprint(ts.Stdout(), out.String())
}
