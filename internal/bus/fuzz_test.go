package bus

import (
	"strings"
	"testing"
	"time"
)

// What hosts say of themselves before they are known.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		`{"host":"n1","key":"UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4","secret":"0123456789abcdef"}`,
		`{"host":"n1.farm","key":""}`, `{"host":"n1.>"}`, `null`, `[]`, `{"host":"` + strings.Repeat("n", 5000) + `"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseRequest([]byte(text))
		if err != nil {
			return
		}
		name, err := token(q.Host)
		if err != nil || strings.ContainsAny(name, ".*> \t\r\n") || len(q.Secret) > maxSecret {
			t.Errorf("%+v is taken: %v", q, err)
		}
		r := newRegistry()
		if v, err := r.join(q, origin{address: "192.0.2.1"}, time.Unix(1, 0)); err != nil || v.admitted {
			t.Errorf("%+v: %+v, %v", q, v, err)
		}
	})
}

// What a server answers that has the authority's certificate.
func FuzzAdmission(f *testing.F) {
	for _, text := range []string{`{"waiting":"no secret"}`, `{"identity":"x","port":4222}`, `{"identity":"x","servers":["tls://n1:4222"],"ca":"x"}`, `{}`, `{"identity":"x","port":-1}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAdmission([]byte(text))
		if err == nil && a.Waiting == "" && (a.Identity == "" || len(a.Servers) == 0 && (a.Port <= 0 || a.Port > 65535)) {
			t.Errorf("%q is taken: %+v", text, a)
		}
		if err == nil && len(a.Servers) > 0 {
			_, _ = siteTLS(a.Servers, a.CA)
		}
	})
}

// The file that an administrator copies.
func FuzzEnrolment(f *testing.F) {
	fingerprint := fingerprintPrefix + strings.Repeat("0a", 32)
	for _, text := range []string{"farm:8472 " + fingerprint + " secret\n", "# a comment\n\n- " + fingerprint, "[::1]:8472 " + fingerprint, "farm " + fingerprint, "a:1 b c d", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEnrolment(text)
		if err != nil || e == (Enrolment{}) {
			return
		}
		if again, err := ParseEnrolment(e.String()); err != nil || again != e {
			t.Errorf("%q: %+v is written as %q, which is %+v, %v", text, e, e.String(), again, err)
		}
	})
}

// Subjects are a site's server's to deliver.
func FuzzSubject(f *testing.F) {
	for _, text := range []string{"allotment.host.n1.beat", "allotment.host.n1:farm.jobs.3", "allotment.host.>", "allotment.host.n1", "allotment.to.n1.x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, kind, ok := sender(text)
		if !ok {
			return
		}
		if name, err := token(host); err != nil || fromHosts+name+"."+kind != text {
			t.Errorf("%q: host %q, kind %q, %v", text, host, kind, err)
		}
	})
}
