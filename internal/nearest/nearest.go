// Package nearest finds the known word that a mistyped one most probably means.
package nearest

import "strings"

// maxLength is the longest word, in bytes, that is compared.
const maxLength = 64

// Of returns the known word with the fewest mistakes (a character too many, missing, wrong, or
// two exchanged) to a word: one, or one in three characters. A word
// of one character has none. Upper and lower case are the same.
// Of equally near words the first counts; of none, the first that begins with the word. "": there
// is none either.
func Of(word string, known []string) string {
	if len(word) < 2 || len(word) > maxLength {
		return ""
	}
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if len(k) > maxLength {
			continue
		}
		if n := mistakes(strings.ToLower(word), strings.ToLower(k)); n < least {
			best, least = k, n
		}
	}
	for _, k := range known {
		if best == "" && len(word) > 2 && len(k) > len(word) && strings.EqualFold(k[:len(word)], word) {
			best = k
		}
	}
	return best
}

// Hint returns a text for the end of an error about an unknown word: ` (did you mean X?)`, or
// "" if no word is near.
func Hint(word string, known []string) string {
	if found := Of(word, known); found != "" {
		return " (did you mean " + found + "?)"
	}
	return ""
}

// mistakes counts the mistakes that make a of b (the distance of Damerau and Levenshtein,
// in which no part is changed twice).
func mistakes(a, b string) int {
	var before, last []int
	current := make([]int, len(b)+1)
	for j := range current {
		current[j] = j
	}
	for i := range len(a) {
		before, last, current = last, current, make([]int, len(b)+1)
		current[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			current[j+1] = min(replaced, last[j+1]+1, current[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				current[j+1] = min(current[j+1], before[j-1]+1)
			}
		}
	}
	return current[len(b)]
}
