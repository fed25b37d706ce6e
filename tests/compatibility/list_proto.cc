// Prints the listing of proto/, for tests/compatibility/released when a version is released.
#include <cstdio>

#include "tests/compatibility/proto_listing.h"

int main() {
  std::fputs(skein::compatibility::ProtoListing(skein::compatibility::FilesOfSkein()).c_str(),
             stdout);
}
