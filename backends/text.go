package backends

import "slices"

// MapTexts is the Spec with f applied to each of its texts. A list that f does
// not change is shared with s.
func (s Spec) MapTexts(f func(string) string) Spec {
	for _, p := range []*string{&s.Name, &s.Project, &s.Queue, &s.Description, &s.Dir, &s.Stdin, &s.Stdout, &s.Stderr, &s.Terminal, &s.After} {
		*p = f(*p)
	}
	for _, p := range []*[]string{&s.Hosts, &s.Command, &s.Env} {
		*p = mapTexts(*p, f)
	}
	return s
}

// MapTexts is the Change with f applied to each of its texts.
func (c Change) MapTexts(f func(string) string) Change {
	for _, p := range []**string{&c.Name, &c.Project, &c.Queue, &c.Description, &c.After} {
		if *p != nil {
			text := f(**p)
			*p = &text
		}
	}
	if c.Hosts != nil {
		hosts := append([]string{}, mapTexts(*c.Hosts, f)...) // JSON's null would be no change
		c.Hosts = &hosts
	}
	return c
}

// mapTexts copies no list that f leaves as it is: environments are long, and few
// texts are changed.
func mapTexts(list []string, f func(string) string) []string {
	for i, text := range list {
		if f(text) != text {
			list = slices.Clone(list)
			for ; i < len(list); i++ {
				list[i] = f(list[i])
			}
			return list
		}
	}
	return list
}
