package desk

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/mail"
)

// mailTimeout is how long sendmail may take to accept a mail.
const mailTimeout = time.Minute

// MayMail returns an error if one of these is no mail address, or if the caller may not send
// mail: through sudo it would come from another user.
func (d *Desk) MayMail(to []string) error {
	if len(to) == 0 {
		return nil
	}
	if _, err := mail.Addresses(to); err != nil {
		return invalidf("--mail: %w", err)
	}
	if d.Caller.sudo() && !d.PBA.Roles.Admin(d.Caller.Caller) {
		return fmt.Errorf("mail the report: you are %s: through sudo only an admin may send mail (config: pba.roles.admins)", d.Caller)
	}
	return nil
}

// Mail hands a mail to the site's sendmail.
func (d *Desk) Mail(ctx context.Context, to []string, subject, text string, html []byte) error {
	if err := d.MayMail(to); err != nil {
		return err
	}
	all, err := mail.Addresses(to)
	if err != nil {
		return invalidf("--mail: %w", err)
	}
	m := mail.Message{To: all, Subject: subject, Date: d.Now().In(d.zone()), Text: text, HTML: html}
	if _, err := command.Run(ctx, command.Command{Argv: mail.Argv(d.PBA.Mail.Sendmail, all), Stdin: bytes.NewReader(m.Bytes()), Timeout: mailTimeout}); err != nil {
		return fmt.Errorf("mail the report: %w: see pba.mail.sendmail in %s, and that program's log", err, d.Paths.Config)
	}
	return nil
}
