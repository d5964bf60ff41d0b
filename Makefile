# Allotment. `make help` lists the targets.

GO ?= go
MODULE := github.com/allotment-hpc/allotment
SHELL_PKG := $(MODULE)/cmd/internal/shell

# A clone without tags, and a tree without git, build too.
VERSION ?= $(or $(shell git describe --tags --match 'v[0-9]*' 2>/dev/null),dev)
COMMIT ?= $(or $(shell git describe --always --dirty --exclude '*' 2>/dev/null),unknown)
LDFLAGS := -s -w -X $(SHELL_PKG).Version=$(VERSION) -X $(SHELL_PKG).Commit=$(COMMIT)
# The command-line package's own man pages are not used, and slow down each start.
GOBUILD := $(GO) build -trimpath -tags urfave_cli_no_docs -ldflags '$(LDFLAGS)'

# Where the programs and the packages are built. A test that must not change these
# names its own.
BIN ?= bin
DIST ?= dist
KINDS ?= deb rpm

# One folder, one program. Those that run once for every job, beside it, or on
# a host without our libraries are static. The others ask the system for users'
# names, which takes its library.
PROGRAMS := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
STATIC := $(filter adummy ahostd-root asplit-task astate asub esub miniq-keeper,$(PROGRAMS))
DYNAMIC := $(filter-out $(STATIC),$(PROGRAMS))
# ajobs is each of these when it is called by that name.
WRAPPERS := ahosts aqueues akill astop aresume arequeue amod apeek aswitch ahist atop abot

# Tools are pinned here, never in go.mod.
GOFUMPT := $(GO) run mvdan.cc/gofumpt@v0.12.0
GOLANGCI_LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

NFPM := $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

# Where `make install` puts things, each below DESTDIR if that is set.
PREFIX ?= /usr/local
# A prefix of its own gets all below it; the system's prefixes share /etc.
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
BINDIR := $(PREFIX)/bin
# The programs find each other here; BINDIR has links to those that users type.
LIBDIR := $(PREFIX)/lib/allotment
UNITDIR ?= $(PREFIX)/lib/systemd/system
MANDIR := $(PREFIX)/share/man
BASHDIR := $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR := $(PREFIX)/share/fish/vendor_completions.d
DOCDIR := $(PREFIX)/share/doc/allotment
# Rules for Prometheus and a dashboard for Grafana.
DATADIR := $(PREFIX)/share/allotment

LAWS_CHECKS ?= 20000
FUZZTIME ?= 30s
# These tests take a while and have targets of their own.
TESTED = $$($(GO) list ./... | grep -vE '/test/(agents|kill|crash|slurm|lsf|web)$$')
# These tests only run programs, which the race detector does not see.
PROGRAM_TESTS := '/test/(clock|completion|days|docs|idle|install)$$'
CODE_TESTED = $$(printf '%s\n' $(TESTED) | grep -vE $(PROGRAM_TESTS))
# Nor do these packages' tests do more than run programs, most of them other queues' commands.
RACED = $$(printf '%s\n' $(CODE_TESTED) | grep -vE '/(cmd/[a-z-]+|esub|backends/(lsf|miniq)|test/.*)$$')
# Tests write files that are trusted only if no other user can write them.
UMASK := umask 022;

.DEFAULT_GOAL := build
.PHONY: help build test check lint race demo replay figures bench-plan laws breaks same-plans generate test-kill test-root bench bench-queue fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## build the programs into bin/
	@mkdir -p $(BIN)
	@for name in $(PROGRAMS); do test ! -L $(BIN)/$$name || rm $(BIN)/$$name; done # it would be written through
	$(if $(STATIC),CGO_ENABLED=0 $(GOBUILD) -o $(BIN)/ $(STATIC:%=./cmd/%))
	$(if $(DYNAMIC),CGO_ENABLED=1 $(GOBUILD) -o $(BIN)/ $(DYNAMIC:%=./cmd/%))
	$(if $(filter ajobs,$(PROGRAMS)),@for name in $(WRAPPERS); do ln -sfn ajobs $(BIN)/$$name; done)

.PHONY: test-code test-programs
test: test-code test-programs ## run the tests

test-code: build # the packages' own tests
	$(UMASK) $(GO) test -timeout=30m $(CODE_TESTED)

test-programs: build # tests that type commands and wait for real processes
	$(UMASK) $(GO) test $$(printf '%s\n' $(TESTED) | grep -E $(PROGRAM_TESTS))

check: lint race generate-is-clean ## everything that a change must pass besides `make test`

lint: ## formatting, go.mod, vet, the linters with the import rules, the rules' homes in docs/design.md, and plain words
	@diff="$$($(GOFUMPT) -d .)"; if [ -n "$$diff" ]; then printf '%s\n' "$$diff"; echo 'fix it: $(GOFUMPT) -w .' >&2; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GOLANGCI_LINT) run
	$(GO) run ./test/rules
	$(GO) run ./test/words

race: build ## run the tests under the race detector
	$(UMASK) $(GO) test -race -timeout=40m $(RACED)

demo: build ## guaranteed slots at work on a throw-away farm, in under 90 s (ALLOTMENT_BACKEND=slurm: on Slurm, as root; =lsf: on LSF's stand-in)
	BREAK='$(BREAK)' RECORDING='$(if $(BREAK)$(ALLOTMENT_BACKEND),,docs/demo.cast)' $(GO) run ./test/demo

.PHONY: recording
recording: build ## write docs/demo.cast and docs/demo.svg, a recording of the demo (on an idle machine)
	RECORD=docs $(GO) run ./test/demo

.PHONY: scenario-dummy
scenario-dummy: build ## memory-hungry jobs never meet on a host, whatever becomes of the engine: on the bundled queue and, as root, on Slurm (SEED=, RUN=with, ALLOTMENT_BACKEND=miniq)
	$(UMASK) RUN='$(RUN)' SEED='$(SEED)' $(GO) run ./test/dummies

# As root with what test/slurm-cluster.sh deps names. ALLOTMENT_SLURM_ROOT is a directory
# that test/slurm-version.sh made: its Slurm is tested instead of the one installed here.
SLURM_24_11 ?= /var/tmp/allotment-slurm-24.11
ON_SLURM = $(UMASK) ALLOTMENT_TEST_SLURM=1 $(if $(ALLOTMENT_SLURM_ROOT),test/slurm-version.sh run '$(ALLOTMENT_SLURM_ROOT)') $(GO) test -count=1 -v
.PHONY: test-slurm test-slurm-rounds test-slurm-other test-lsf bench-slurm
test-slurm: build ## all that needs a real Slurm, on clusters of its own (as root; SLURM_TESTS=PATTERN: some of it, ALLOTMENT_ROUNDS=: fewer random rounds than 6)
	$(ON_SLURM) -p 1 -parallel 4 -timeout=60m $(if $(SLURM_TESTS),-run '$(SLURM_TESTS)') ./test/slurm ./test/cluster ./test/farm ./backends/slurm
	$(ON_SLURM) -run Slurm ./test/docs

test-slurm-rounds: build ## 30 random rounds of mixed jobs (ROUNDS=) on a real Slurm, judged from its own records alone (as root; SEED=)
	export ALLOTMENT_ROUNDS='$(or $(ROUNDS),30)' SEED='$(SEED)'; $(ON_SLURM) -timeout=120m -run TestRounds ./test/slurm

test-slurm-other: build ## the same on Slurm 24.11, which it installs beside the one that is here (as root, with debootstrap)
	test/slurm-version.sh make '$(SLURM_24_11)'
	$(MAKE) --no-print-directory --assume-old=build test-slurm ALLOTMENT_SLURM_ROOT='$(SLURM_24_11)'

test-lsf: build ## at the stand-in for LSF, what `make test` leaves out because it takes minutes
	$(UMASK) ALLOTMENT_TEST_LSF=minutes $(GO) test -count=1 -p 1 -parallel 8 -timeout=30m -v ./test/lsf
	$(UMASK) ALLOTMENT_TEST_LSF=minutes $(GO) test -count=1 -parallel 16 -timeout=30m -v -run 'TestConformance|TestEngineCrash|TestRequeueOnADeadHost' ./backends/lsf
	$(UMASK) $(GO) test -count=1 -v -run LSF ./test/docs ./cmd/esub

# With npm, axe-core checks the pages, too.
.PHONY: test-web
test-web: build ## the management page in Chromium, over a farm that works (SCREENSHOTS=docs/web writes what docs/plan.md shows)
	$(UMASK) ALLOTMENT_SCREENSHOTS='$(abspath $(SCREENSHOTS))' $(GO) test -count=1 -timeout=10m -v ./test/web

bench-slurm: build ## a whole cycle against squeue, sbatch with our filter against sbatch without, and their budgets (as root)
	$(UMASK) $(GO) run ./bench/slurm -programs $(BIN) $(BENCH)

# As root, with slurmdbd. The tables are only worth something from an otherwise idle machine;
# COMPARE='-records DIR' keeps what sacct printed, and resumes.
.PHONY: compare-slurm
compare-slurm: build ## the guarantee by Slurm's own means and by Allotment, with the same jobs: writes the tables of docs/slurm.md (as root, 25 minutes)
	$(UMASK) $(GO) run ./bench/compare -programs $(BIN) $(COMPARE)

.PHONY: split-small
split-small: build ## asplit on a small farm of which one host becomes slow halfway: miniq's and, as root, Slurm's
	$(UMASK) $(if $(filter 0,$(shell id -u)),ALLOTMENT_TEST_SLURM=1) $(GO) test -count=1 -timeout=10m -v -run TestSmall ./test/split

replay: ## a recorded trace with and without pba: make replay TRACE=FILE.swf.gz
ifeq ($(TRACE),)
	@echo 'skip: no TRACE given (make replay TRACE=FILE.swf.gz)'
else
	@$(MAKE) --no-print-directory build
	$(GO) run ./test/replay '$(TRACE)'
endif

figures: ## what guaranteed slots are worth, simulated: make figures TRACE=FILE.swf.gz writes docs/figures.md and the tables of README.md
ifeq ($(TRACE),)
	@echo 'skip: no TRACE given (make figures TRACE=FILE.swf.gz)'
else
	$(GO) run ./bench/figures '$(TRACE)'
endif

bench-plan: ## plan.Make at 10,000, 100,000 and 1,000,000 jobs, and where a search for victims is long (budgets in docs/design.md)
	$(GO) run ./bench/plan

.PHONY: bench-web
bench-web: ## each page of 500 hosts, 10,000 jobs and 200 projects (budget: 1 s, 300 KB compressed, no call of the queue), and 50 watchers (200 MiB)
	ALLOTMENT_BENCH=1 $(GO) test ./web -count=1 -run '^TestLargeFarm' -v

.PHONY: bench-bus
bench-bus: build ## allotd with 1,000 hosts of 50 jobs on the real bus (budget: a core, 500 MiB, 2 MB/s)
	$(UMASK) $(GO) run ./bench/bus -programs $(BIN) $(BENCH)

# As root it runs PostgreSQL as the account postgres. Without PostgreSQL it measures our own side.
.PHONY: bench-state
bench-state: ## state objects on 100 hosts against a central PostgreSQL: 10,000 jobs of 10 events, and 100 clients (8 minutes)
	$(UMASK) $(GO) run ./bench/state $(BENCH)

.PHONY: bench-hosts
bench-hosts: build ## ahostd with 200 jobs of 5 processes (budget: 1 % of a core at 5 s, 3 % at 1 s, 50 MiB)
	$(GO) run ./bench/hosts -programs $(BIN) $(BENCH)

.PHONY: bench-simulate
bench-simulate: ## pba simulate of 188,041 one-slot jobs on 500 slots under three policies (budget: 120 s of one core, 500 MiB)
	$(GO) run ./bench/simulate

laws: ## the laws on LAWS_CHECKS random farms
	@packages="$$(grep -rlE '^func Test(Heavy)?Law' --include='*_test.go' . | xargs -r dirname | sort -u)"; \
	if [ -z "$$packages" ]; then echo 'skip: no laws yet'; exit 0; fi; \
	set -x; $(GO) test $$packages -count=1 -timeout=120m -run '^Test(Heavy)?Law' -rapid.checks=$(LAWS_CHECKS) -v

breaks: ## break each law by a small patch: exactly that law must fail (those of the crash tests: make test-crash; PART=0/6: each sixth)
	$(GO) run ./test/breaks $(if $(PART),-part '$(PART)')

same-plans: ## plan.Make decides as it did in an older tree: make same-plans OLD=REVISION [FARMS=20000] [TRACE=FILE.swf.gz]
	$(GO) run ./test/sameplans -old '$(OLD)' -farms '$(or $(FARMS),20000)' -trace '$(TRACE)'

test-kill: build ## kill pba between any two of its calls, and the agents at random
	$(UMASK) $(GO) test -count=1 -timeout=60m -v ./test/kill ./test/agents

.PHONY: test-agents
test-agents: build ## guaranteed slots with agents that are killed at random, beside a farm without them, ten minutes each (AGENTS_TIME=)
	$(UMASK) ALLOTMENT_AGENTS_TIME=$(or $(AGENTS_TIME),10m) $(GO) test -count=1 -timeout=2h -v ./test/agents

# As root with munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins lua5.1 and
# task-spooler it compares all; it leaves out what is missing, and prints that.
bench-queue: build ## the bundled queue against Slurm and task-spooler, and its budgets
	$(UMASK) $(GO) run ./bench/queues -programs $(BIN) $(BENCH)

# As root: it makes cgroups. With parallel it compares GNU's too; BENCH='-only side' alone, as
# any user: asplit, parallel and xargs on one host.
.PHONY: bench-split
bench-split: build ## asplit on hosts of speed 1:2:4:8 against the ideal and against GNU parallel, and its budgets (as root, 9 minutes)
	$(UMASK) $(GO) run ./bench/split -programs $(BIN) $(BENCH)

# As root with slurmctld it measures rounds on Slurm, too. BENCH='-spawned 100000 -pairs 15' is
# closer, and takes an hour or more.
.PHONY: bench-workers
bench-workers: build ## rounds with standing workers and without, items that do nothing beside xargs and GNU parallel, grants and tasks of asplit serve, and their budgets (10 minutes)
	$(UMASK) $(GO) run ./bench/split -programs $(BIN) -only workers $(BENCH)

.PHONY: bench-copies
bench-copies: build ## asplit --copies 2 on three hosts of a Slurm cluster, one of which is killed at a random moment, 50 times, and its budget (as root, 30 minutes)
	$(UMASK) $(GO) run ./bench/split -programs $(BIN) -only copies -pairs 50 $(BENCH)

.PHONY: test-crash
test-root: ## real users try to get at each other on root's queue (as root: it makes and removes them)
	$(UMASK) ALLOTMENT_TEST_ROOT=1 $(GO) test -count=1 -timeout=20m -v ./test/root

test-crash: ## kill the queue, cut its power, fill its disk: nothing may be lost
	$(UMASK) $(GO) test -count=1 -timeout=20m -v ./test/crash
	$(UMASK) $(GO) run ./test/breaks -of crash

bench: ## the submit filter against a /bin/sh that does nothing (budget: 3 times)
	$(GO) test ./cmd/esub -run '^$$' -bench . -benchtime 500x

# Each program knows its own man page; the completion scripts ask the programs.
MANUALS := pba.1 asub.1 ajobs.1 $(WRAPPERS:%=%.1) asplit.1 astate.1 miniqd.8 allotd.8 ahostd.8
PAGES := $(MANUALS) esub.8 adummy.8
COMPLETED := $(basename $(MANUALS))

generate: build ## write what is generated
	$(GO) generate ./...
	@mkdir -p docs/man completions
	@set -e; for page in $(MANUALS); do \
		$(BIN)/$${page%.*} __man $${page##*.} $(PAGES) >docs/man/$$page; done
	@$(BIN)/pba __script bash $(COMPLETED) >completions/allotment.bash
	@$(BIN)/pba __script zsh $(COMPLETED) >completions/_allotment
	@$(BIN)/pba __script fish $(COMPLETED) >completions/allotment.fish

.PHONY: web
web: ## write web/static/vendor from the npm packages that web/package-lock.json pins
	@if command -v npm >/dev/null; then web/vendor.sh; else echo 'skip: no npm here: web/static/vendor stays as it is'; fi

.PHONY: generate-is-clean
generate-is-clean: # what is generated is what is committed
	@before="$$(git status --porcelain; git diff)"; $(MAKE) --no-print-directory generate web; \
	if [ "$$before" != "$$(git status --porcelain; git diff)" ]; then \
		git status --short; echo 'make generate changes files: commit what it writes' >&2; exit 1; fi

.PHONY: install uninstall package test-package
UNITS := allotment-miniqd.service allotment-rebalance.service allotment-allotd.service allotment-ahostd.service
DOCS := README.md CHANGELOG.md CONTRIBUTING.md LICENSE $(wildcard docs/*.md docs/*.svg)
# What pages show, at the same places beside them.
PICTURES := $(wildcard docs/web/*.png)
TO := $(DESTDIR)

install: ## install what `make build` built: PREFIX=/usr/local DESTDIR=
	@test -x $(BIN)/pba || { echo 'nothing is built yet: run make first' >&2; exit 1; }
	install -d $(TO)$(BINDIR) $(TO)$(LIBDIR) $(TO)$(UNITDIR) $(TO)$(MANDIR)/man1 $(TO)$(MANDIR)/man8 $(TO)$(BASHDIR) $(TO)$(ZSHDIR) $(TO)$(FISHDIR) \
		$(TO)$(DOCDIR) $(TO)$(DATADIR)/prometheus $(TO)$(DATADIR)/grafana $(TO)$(SYSCONFDIR)/cron.d $(TO)$(SYSCONFDIR)/logrotate.d
	install -m 755 $(PROGRAMS:%=$(BIN)/%) $(TO)$(LIBDIR)
	set -e; for name in $(WRAPPERS); do ln -sfn ajobs $(TO)$(LIBDIR)/$$name; done
	set -e; lib="$$(realpath -ms --relative-to=$(BINDIR) $(LIBDIR))"; for name in $(COMPLETED); do ln -sfn "$$lib/$$name" $(TO)$(BINDIR)/$$name; done
	set -e; for page in $(PAGES); do install -m 644 docs/man/$$page $(TO)$(MANDIR)/man$${page##*.}/; done
	install -m 644 completions/allotment.bash $(TO)$(BASHDIR)/asub
	install -m 644 completions/allotment.fish $(TO)$(FISHDIR)/asub.fish
	install -m 644 completions/_allotment $(TO)$(ZSHDIR)/_allotment
	set -e; for name in $(filter-out asub,$(COMPLETED)); do \
		ln -sfn asub $(TO)$(BASHDIR)/$$name; ln -sfn asub.fish $(TO)$(FISHDIR)/$$name.fish; done
	set -e; for unit in $(UNITS); do sed -e 's|@BINDIR@|$(BINDIR)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' packaging/systemd/$$unit >$(TO)$(UNITDIR)/$$unit; chmod 644 $(TO)$(UNITDIR)/$$unit; done
	test -e $(TO)$(SYSCONFDIR)/cron.d/allotment || { sed 's|@BINDIR@|$(BINDIR)|g' packaging/cron/allotment >$(TO)$(SYSCONFDIR)/cron.d/allotment && chmod 644 $(TO)$(SYSCONFDIR)/cron.d/allotment; }
	test -e $(TO)$(SYSCONFDIR)/logrotate.d/allotment || install -m 644 packaging/logrotate/allotment $(TO)$(SYSCONFDIR)/logrotate.d/
	install -m 644 $(DOCS) $(TO)$(DOCDIR)
	sed -i -e 's|](docs/|](|g' -e 's|](\.\./|](|g' $(TO)$(DOCDIR)/*.md # there all pages are in one directory
	set -e; for picture in $(PICTURES:docs/%=%); do install -D -m 644 docs/$$picture $(TO)$(DOCDIR)/$$picture; done
	install -m 644 packaging/prometheus/allotment.rules.yml packaging/prometheus/allotment-hosts.rules.yml $(TO)$(DATADIR)/prometheus
	install -m 644 packaging/grafana/allotment.json packaging/grafana/allotment-hosts.json $(TO)$(DATADIR)/grafana
ifneq ($(SYSCONFDIR),/etc)
	@echo 'cron and logrotate read /etc alone: link or copy what is in $(SYSCONFDIR)/cron.d and logrotate.d there when you want them'
endif

uninstall: ## remove what `make install` put there; config and state stay
	rm -rf $(TO)$(LIBDIR) $(TO)$(DOCDIR) $(TO)$(DATADIR)
	rm -f $(COMPLETED:%=$(TO)$(BINDIR)/%) $(UNITS:%=$(TO)$(UNITDIR)/%)
	for page in $(PAGES); do rm -f $(TO)$(MANDIR)/man$${page##*.}/$$page; done
	rm -f $(COMPLETED:%=$(TO)$(BASHDIR)/%) $(COMPLETED:%=$(TO)$(FISHDIR)/%.fish) $(TO)$(ZSHDIR)/_allotment
	rm -f $(TO)$(SYSCONFDIR)/cron.d/allotment $(TO)$(SYSCONFDIR)/logrotate.d/allotment

# A version begins with a digit and has no dash: v1.2.3-4-gabc is 1.2.3+4+gabc.
PACKAGE_VERSION = $(patsubst dev,0~dev,$(patsubst v%,%,$(subst -,+,$(VERSION))))
PACKAGE_ARCH = $(shell $(GO) env GOARCH)
# The newest symbols that the programs were linked with.
PACKAGE_GLIBC = $(shell cat $(DYNAMIC:%=$(BIN)/%) | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1 | sed s/GLIBC_//)

package: build ## make dist/*.deb and dist/*.rpm
	rm -rf $(foreach kind,$(KINDS),$(DIST)/$(kind) $(DIST)/*.$(kind))
	@set -e; umask 022; for kind in $(KINDS); do \
		zsh=/usr/share/zsh/site-functions; if [ $$kind = deb ]; then zsh=/usr/share/zsh/vendor-completions; fi; \
		$(MAKE) --no-print-directory -s install PREFIX=/usr SYSCONFDIR=/etc DESTDIR=$(DIST)/$$kind ZSHDIR=$$zsh; \
		{ cat packaging/nfpm.yaml; packaging/contents.sh $(DIST)/$$kind; } >$(DIST)/$$kind.yaml; \
		PACKAGE_VERSION='$(PACKAGE_VERSION)' PACKAGE_ARCH='$(PACKAGE_ARCH)' PACKAGE_GLIBC='$(PACKAGE_GLIBC)' \
			$(NFPM) package --config $(DIST)/$$kind.yaml --packager $$kind --target $(DIST)/; \
	done

.PHONY: packager
packager: # is it here?
	@$(NFPM) --version >/dev/null

test-package: package ## install and remove the packages in a fresh Debian (as root)
	packaging/test.sh

.PHONY: test-vm
test-vm: package ## the packages on a Debian that really runs, in a VM: units, journal, cron, upgrade, power cut, purge (as root; SUITE=trixie: Debian 13)
	$(if $(SUITE),VM_SUITE='$(SUITE)') packaging/live.sh $(DIST)/*.deb $(DIST)/*.rpm || [ $$? = 77 ] # 77: no VM can be had here

.PHONY: test-hosts
test-hosts: package ## the package on a farm of three VMs with Slurm 24.11: guaranteed slots, measures, hosts that come and go (STAGES= some; as root)
	packaging/hosts.sh $(DIST)/*.deb $(STAGES) || [ $$? = 77 ] # as above

.PHONY: test-limits
test-limits: package ## limits of jobs in the kernel's control groups: of this machine's version, and of version 2 in a VM; then on a farm of VMs with Slurm, where a job outgrows its host, and agents, links and power fail (as root; HISTORIES=8)
	test/limits.sh || [ $$? = 77 ] # as above
	packaging/hosts.sh $(DIST)/*.deb limits memory histories || [ $$? = 77 ]

.PHONY: test-workers
test-workers: build ## workers of asplit, of asplit serve, of asplit --from-here and of asplit --joined on three hosts of a Slurm cluster, of which links are cut, hosts killed and workers preempted at random (as root; SEED=)
	$(ON_SLURM) -timeout=30m ./test/workers

.PHONY: test-state
test-state: package ## jobs that move between three VMs with Slurm, 1,000 times, with their state; then links, power, agents and allotd fail (as root)
	packaging/hosts.sh $(DIST)/*.deb moves troubles || [ $$? = 77 ] # as above

fuzz: ## fuzz each decoder of test/fuzz/fuzz.txt for FUZZTIME, and miss none
	$(UMASK) $(GO) run ./test/fuzz -time $(FUZZTIME)

clean: ## remove what was built
	rm -rf $(BIN) $(DIST)
