package backends

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fill gives every field of a struct that holds texts some in small letters.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch field := v.Field(i).Addr().Interface().(type) {
		case *string:
			*field = "a"
		case *[]string:
			*field = []string{"1", "a"}
		case **string:
			text := "a"
			*field = &text
		case **[]string:
			*field = &[]string{"1", "a"}
		}
	}
}

// texts are the fields of a struct that hold texts.
func texts(v reflect.Value) map[string]string {
	all := map[string]string{}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch field := v.Field(i).Interface().(type) {
		case string:
			all[name] = field
		case []string:
			all[name] = strings.Join(field, " ")
		case *string:
			all[name] = *field
		case *[]string:
			all[name] = strings.Join(*field, " ")
		}
	}
	return all
}

// No text of a submission, a job or a change is forgotten where all are escaped, and
// the original stays as it is.
func TestMapTextsReachesEveryText(t *testing.T) {
	check := func(original, mapped any, before map[string]string) {
		t.Helper()
		if d := cmp.Diff(before, texts(reflect.ValueOf(original))); d != "" {
			t.Errorf("%T: the original is changed:\n%s", original, d)
		}
		for name, text := range before {
			before[name] = strings.ToUpper(text)
		}
		if d := cmp.Diff(before, texts(reflect.ValueOf(mapped))); d != "" {
			t.Errorf("%T: want all in capitals:\n%s", mapped, d)
		}
	}
	var s Spec
	fill(reflect.ValueOf(&s).Elem())
	before := texts(reflect.ValueOf(s))
	check(s, s.MapTexts(strings.ToUpper), before)
	var j Job
	fill(reflect.ValueOf(&j).Elem())
	before = texts(reflect.ValueOf(j))
	check(j, j.MapTexts(strings.ToUpper), before)
	var c Change
	fill(reflect.ValueOf(&c).Elem())
	before = texts(reflect.ValueOf(c))
	check(c, c.MapTexts(strings.ToUpper), before)
}

func TestMapTextsOfAnEmptyListOfHosts(t *testing.T) {
	if got := (Change{Hosts: new([]string)}).MapTexts(strings.ToUpper); *got.Hosts == nil {
		t.Error("any host became no change")
	}
}

// Specs that differ in any one field are not equal.
func TestSpecEqual(t *testing.T) {
	of := reflect.TypeFor[Spec]()
	for i := range of.NumField() {
		one, other := new(Spec), new(Spec)
		setAll(reflect.ValueOf(one).Elem().Field(i))
		setAll(reflect.ValueOf(other).Elem().Field(i))
		if !one.Equal(other) {
			t.Errorf("%s: the same Spec is not equal", of.Field(i).Name)
		}
		if one.Equal(new(Spec)) || new(Spec).Equal(one) {
			t.Errorf("%s: makes no difference", of.Field(i).Name)
		}
	}
}

// setAll gives a value that is not zero to v and all in it.
func setAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setAll(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			setAll(v.Field(i))
		}
	default:
		panic("setAll knows no " + v.Kind().String())
	}
}
