// The contract of proto/ as lines of text, and the rule that later versions must keep
// (docs/compatibility.md).
//
// A line is an element and what peers of other versions rely on, words with one space between:
//   message NAME
//   field MESSAGE NUMBER NAME TYPE singular|optional|repeated [oneof:NAME]
//   reserved MESSAGE NUMBER
//   enum NAME
//   value ENUM NUMBER NAME
//   reserved-value ENUM NUMBER
//   service NAME
//   rpc SERVICE NAME [stream:]REQUEST [stream:]RESPONSE
// The last word of a deprecated element's line is "deprecated".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class FileDescriptor;
}  // namespace google::protobuf

namespace skein::compatibility {

// One line for each element of the files, sorted by line.
std::string ProtoListing(const std::vector<const google::protobuf::FileDescriptor*>& files);

// All files of proto/.
std::vector<const google::protobuf::FileDescriptor*> FilesOfSkein();

// What `now` breaks for peers that speak `released`, one sentence each; empty: nothing. An element
// may only go if `released` has it as deprecated, and the number of a field or value that goes
// stays reserved. Name, type and cardinality of what stays do not change. Both are listings.
std::vector<std::string> BrokenBy(std::string_view now, std::string_view released);

}  // namespace skein::compatibility
