package configfile

import (
	"fmt"
	"io"
	"log/slog"
)

// Log is the config file's section log: how services log what they do.
type Log struct {
	Format LogFormat `yaml:"format"`
	Level  LogLevel  `yaml:"level"`
}

// LogFormat is how a line of the log is written.
type LogFormat string

// The formats.
const (
	LogText LogFormat = "text" // key=value
	LogJSON LogFormat = "json"
)

// UnmarshalText accepts the names of the formats.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch got := LogFormat(text); got {
	case LogText, LogJSON:
		*f = got
		return nil
	}
	return fmt.Errorf("%q is no format (known: %s, %s)", text, LogText, LogJSON)
}

// LogLevel is the least level that is written: debug, info, warn, error; "" leaves
// it to the program.
type LogLevel string

// UnmarshalText accepts the names of the levels, and nothing.
func (l *LogLevel) UnmarshalText(text []byte) error {
	if _, ok := levels()[LogLevel(text)]; !ok && len(text) > 0 {
		return fmt.Errorf("%q is no level (known: debug, info, warn, error)", text)
	}
	*l = LogLevel(text)
	return nil
}

func levels() map[LogLevel]slog.Level {
	return map[LogLevel]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
}

// Logger writes a log as the section says; other is the level where it says none.
// Users' texts in it are quoted: no line of theirs is one of the log's.
func (l Log) Logger(w io.Writer, other slog.Level) *slog.Logger {
	level, ok := levels()[l.Level]
	if !ok {
		level = other
	}
	options := &slog.HandlerOptions{Level: level}
	if l.Format == LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
