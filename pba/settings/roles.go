package settings

import "slices"

// Roles is the config file's section pba.roles.
type Roles struct {
	Admins Admins `yaml:"admins"`
	// TrustSudo lets managers and admins run pba through sudo as the ledger's
	// owner: what they may do is decided by who they are, not by the owner.
	TrustSudo bool `yaml:"trust_sudo"`
}

// Admins names who may do everything, besides root and the ledger's owner.
type Admins struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Caller is somebody by the system's word.
type Caller struct {
	Owner  bool // root, or the ledger's owner
	User   string
	Groups []string
}

// Admin tells whether somebody may change everything.
func (r Roles) Admin(c Caller) bool {
	if c.Owner || c.User != "" && slices.Contains(r.Admins.Users, c.User) {
		return true
	}
	return slices.ContainsFunc(r.Admins.Groups, func(group string) bool { return slices.Contains(c.Groups, group) })
}

// MayPlan tells whether somebody may change the allocations of a project with
// these managers.
func (r Roles) MayPlan(c Caller, managers []string) bool {
	return r.Admin(c) || c.User != "" && slices.Contains(managers, c.User)
}
