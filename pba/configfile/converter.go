package configfile

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// The program that writes YAML as plain YAML for asub, which links no YAML library, and the
// argument that asks for it.
const (
	Converter        = "ajobs"
	ConverterRequest = "__yaml"
)

// converterTime is how long that may take.
const converterTime = 10 * time.Second

// ConvertByProgram is a config.Converter: it has another program of ours do it.
func ConvertByProgram(text []byte) ([]byte, error) {
	program, err := command.Sibling(Converter)
	if err != nil {
		return nil, err
	}
	out, err := command.Run(context.Background(), command.Command{Argv: []string{program, ConverterRequest}, Stdin: bytes.NewReader(text), Timeout: converterTime})
	var failed *command.Error
	if errors.As(err, &failed) && failed.Status == 1 && failed.Stderr != "" {
		return nil, errors.New(failed.Stderr)
	}
	return out, err
}
