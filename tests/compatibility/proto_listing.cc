#include "tests/compatibility/proto_listing.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/common.pb.h"
#include "proto/decode_worker.pb.h"
#include "proto/orchestrator.pb.h"
#include "proto/prefill_worker.pb.h"
#include "proto/worker_orders.pb.h"

namespace skein::compatibility {
namespace {

namespace pb = google::protobuf;
using Lines = std::set<std::string>;

template <typename Element>
const char* Deprecated(const Element& element) {
  return element.options().deprecated() ? " deprecated" : "";
}

std::string TypeOf(const pb::FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

std::string CardinalityOf(const pb::FieldDescriptor& field) {
  if (field.is_repeated()) return "repeated";
  return field.has_optional_keyword() ? "optional" : "singular";
}

void AddEnum(const pb::EnumDescriptor& type, Lines* out) {
  out->insert(absl::StrCat("enum ", type.full_name(), Deprecated(type)));
  for (int i = 0; i < type.value_count(); ++i) {
    const pb::EnumValueDescriptor& value = *type.value(i);
    out->insert(absl::StrCat("value ", type.full_name(), " ", value.number(), " ", value.name(),
                             Deprecated(value)));
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    const pb::EnumDescriptor::ReservedRange& range = *type.reserved_range(i);
    for (int number = range.start; number <= range.end; ++number) {
      out->insert(absl::StrCat("reserved-value ", type.full_name(), " ", number));
    }
  }
}

void AddMessage(const pb::Descriptor& type, Lines* out) {
  out->insert(absl::StrCat("message ", type.full_name(), Deprecated(type)));
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    const pb::OneofDescriptor* oneof = field.real_containing_oneof();
    out->insert(absl::StrCat("field ", type.full_name(), " ", field.number(), " ", field.name(),
                             " ", TypeOf(field), " ", CardinalityOf(field),
                             oneof == nullptr ? "" : " oneof:" + oneof->name(), Deprecated(field)));
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    const pb::Descriptor::ReservedRange& range = *type.reserved_range(i);
    for (int number = range.start; number < range.end; ++number) {
      out->insert(absl::StrCat("reserved ", type.full_name(), " ", number));
    }
  }
  for (int i = 0; i < type.enum_type_count(); ++i) AddEnum(*type.enum_type(i), out);
  for (int i = 0; i < type.nested_type_count(); ++i) AddMessage(*type.nested_type(i), out);
}

void AddService(const pb::ServiceDescriptor& service, Lines* out) {
  out->insert(absl::StrCat("service ", service.full_name(), Deprecated(service)));
  for (int i = 0; i < service.method_count(); ++i) {
    const pb::MethodDescriptor& rpc = *service.method(i);
    out->insert(absl::StrCat("rpc ", service.full_name(), " ", rpc.name(), " ",
                             rpc.client_streaming() ? "stream:" : "", rpc.input_type()->full_name(),
                             " ", rpc.server_streaming() ? "stream:" : "",
                             rpc.output_type()->full_name(), Deprecated(rpc)));
  }
}

}  // namespace

std::string ProtoListing(const std::vector<const pb::FileDescriptor*>& files) {
  Lines lines;
  for (const pb::FileDescriptor* file : files) {
    for (int i = 0; i < file->message_type_count(); ++i) AddMessage(*file->message_type(i), &lines);
    for (int i = 0; i < file->enum_type_count(); ++i) AddEnum(*file->enum_type(i), &lines);
    for (int i = 0; i < file->service_count(); ++i) AddService(*file->service(i), &lines);
  }
  return absl::StrJoin(lines, "\n") + "\n";
}

// By a message of each, so that all of them are linked.
std::vector<const pb::FileDescriptor*> FilesOfSkein() {
  return {v1::RequestId::descriptor()->file(), v1::OpenTransferRequest::descriptor()->file(),
          v1::RegisterRequest::descriptor()->file(), v1::StepTimesRequest::descriptor()->file(),
          v1::AssignRequest::descriptor()->file()};
}

}  // namespace skein::compatibility
