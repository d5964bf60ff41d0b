package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// staticHashes are the hashes of the static files' contents, by their paths below static/.
var staticHashes = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, dir := range []string{"", "vendor"} {
		entries, err := staticFiles.ReadDir(path.Join("static", dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			content, err := staticFiles.ReadFile(path.Join("static", dir, e.Name()))
			if err != nil {
				continue // a directory
			}
			sum := sha256.Sum256(content)
			all[path.Join(dir, e.Name())] = hex.EncodeToString(sum[:8])
		}
	}
	return all
})

// asset is the address of a static file. It changes with the file's content, so that
// browsers keep it.
func asset(name string) (string, error) {
	hash, ok := staticHashes()[name]
	if !ok {
		return "", fmt.Errorf("there is no static file %q", name)
	}
	return "/static/" + name + "?v=" + hash, nil
}

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	hash, ok := staticHashes()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("ETag", `"`+hash+`"`)
	header.Set("Cache-Control", "public, no-cache")
	if r.URL.Query().Get("v") == hash {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, staticFiles, "static/"+name)
}
