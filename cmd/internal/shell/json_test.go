package shell

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSONEscapesInvisibleCharacters(t *testing.T) {
	value := map[string]string{"name": "a\x1b\u009b\u202e\U000e0041<b>中"}
	var b bytes.Buffer
	if err := PrintJSON(&b, value); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"name\": \"a\\u001b\\u009b\\u202e\\udb40\\udc41<b>中\"\n}\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	var back map[string]string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || !cmp.Equal(back, value) {
		t.Errorf("read back %q, %v", back, err)
	}
}
