package main

import (
	"bytes"
	"context"
	"image/png"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// writePart writes the part of a mail that has a type.
func writePart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: part MAIL TYPE FILE")
	}
	m, err := mail.ReadMessage(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	ts.Check(err)
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := parts.NextPart() // which decodes quoted-printable
		if err != nil {
			ts.Fatalf("%s has no part %s: %v", args[0], args[1], err)
		}
		if kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); kind == args[1] {
			content, err := io.ReadAll(part)
			ts.Check(err)
			ts.Check(os.WriteFile(ts.MkAbs(args[2]), content, 0o600))
			return
		}
	}
}

// screenshotTime limits the time that a browser has for a page.
const screenshotTime = 2 * time.Minute

// takeScreenshot opens a page, and checks that it has something on it and that the console
// reports nothing. The screenshot is kept in the folder ALLOTMENT_SCREENSHOTS.
func takeScreenshot(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: screenshot PAGE")
	}
	file := ts.MkAbs(strings.TrimSuffix(args[0], ".html") + ".png")
	ctx, cancel := context.WithTimeout(context.Background(), screenshotTime)
	defer cancel()
	// Root has no sandbox to run it in; the page is our own.
	c := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--enable-logging=stderr",
		"--user-data-dir="+ts.MkAbs("browser"), "--window-size=1280,5600", "--screenshot="+file, "file://"+ts.MkAbs(args[0]))
	c.Env = append(os.Environ(), "HOME="+ts.MkAbs("."))
	complaints, err := c.CombinedOutput()
	if err != nil || bytes.Contains(complaints, []byte("CONSOLE")) {
		ts.Fatalf("chromium: %v\n%s", err, complaints)
	}
	content, err := os.ReadFile(file)
	ts.Check(err)
	if folder := os.Getenv("ALLOTMENT_SCREENSHOTS"); folder != "" {
		ts.Check(os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o600))
	}
	picture, err := png.Decode(bytes.NewReader(content))
	ts.Check(err)
	colours, drawn := map[[3]uint32]bool{}, 0
	paper := [3]uint32{0xffff, 0xffff, 0xffff}
	size := picture.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			colour := [3]uint32{r, g, b}
			if colours[colour] = true; colour != paper {
				drawn++
			}
		}
	}
	if size.Dx() != 1280 || len(colours) < 16 || drawn < size.Dx()*size.Dy()/100 {
		ts.Fatalf("the page is %v with %d colours, and %d pixels are not white", size, len(colours), drawn)
	}
}
