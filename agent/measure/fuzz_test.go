package measure

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// What the kernel writes, and what users put into names and environments there.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{
		"usage_usec 1500000\nuser_usec 1\n", "0.52 0.58 0.59 2/345 6789\n", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n", "8:16 Read 4096\nTotal 1\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551615\n", "read_bytes: 1\nwrite_bytes: 2\n", "1 2 3 4\n",
		"VmSwap:\t 1 kB\n", "   8       0 sda 1\n", "SLURM_JOB_ID=7\x00LSB_JOBID=5\x00LSB_JOBINDEX=2\x00MINIQ_JOBID=1[2]\x00",
		"system.slice/slurmstepd.scope/job_12/step_0", "slurm/uid_1000/job_12", "lsf/c/job.12[3].1.2", "/../..//job_1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		keyed(b, "usage_usec")
		parsePressure(b)
		ParseIO(b)
		parseKB(b, "VmSwap")
		parseDevices(b)
		if load := parseLoad(b); load != nil && !(*load >= 0) {
			t.Errorf("the load is %v", *load)
		}
		device(text)
		if resident, shared := parseStatm(b); shared > resident {
			t.Errorf("of %d pages %d are shared", resident, shared)
		}
		if len(parseIOStat(b)) > maxDevices || len(parseBlkio(b, b)) > maxDevices {
			t.Error("more devices than there may be")
		}
		for _, h := range hierarchies(b) {
			if !strings.HasPrefix(h.point, "/") {
				t.Errorf("mounted at %q", h.point)
			}
		}
		c := ParseEnvironment(b)
		for _, keeper := range []bool{false, true} {
			if queue, id := c.queue(keeper); (queue == "") != (id == backends.ID{}) {
				t.Errorf("%q %v", queue, id)
			}
		}
		queue, id, user, own := parseGroupName(text)
		if (queue == "") != (own == "") || queue != "" && (id.Job <= 0 || user < NoUser || strings.Count(own, "/") != 2 || !strings.HasPrefix(strings.TrimPrefix(text, "/"), own)) {
			t.Errorf("%q %v %d %q", queue, id, user, own)
		}
	})
}
