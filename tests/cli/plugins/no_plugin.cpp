// A library, and no plug-in.
extern "C" int unrelated() {
  return 1;
}
