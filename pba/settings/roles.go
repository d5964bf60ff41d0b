package settings

import "slices"

// Roles is the config file's section pba.roles.
type Roles struct {
	Admins Admins `yaml:"admins"`
	// TrustSudo lets managers and admins run pba through sudo as the ledger's
	// owner, with their own permissions and not the owner's.
	TrustSudo bool `yaml:"trust_sudo"`
}

// Admins names the users who may do everything, besides root and the ledger's owner.
type Admins struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// Caller is a user as the system identifies it.
type Caller struct {
	Owner  bool // root, or the ledger's owner
	User   string
	Groups []string
}

// Admin reports whether the caller may change everything.
func (r Roles) Admin(c Caller) bool {
	if c.Owner || c.User != "" && slices.Contains(r.Admins.Users, c.User) {
		return true
	}
	return slices.ContainsFunc(r.Admins.Groups, func(group string) bool { return slices.Contains(c.Groups, group) })
}

// MayPlan reports whether the caller may change the allocations of a project with
// these managers.
func (r Roles) MayPlan(c Caller, managers []string) bool {
	return r.Admin(c) || c.User != "" && slices.Contains(managers, c.User)
}

// MayAsk reports whether the caller may ask for slots of a project with this group and
// these managers.
func (r Roles) MayAsk(c Caller, group string, managers []string) bool {
	return r.MayPlan(c, managers) || c.User != "" && group != "" && slices.Contains(c.Groups, group)
}
