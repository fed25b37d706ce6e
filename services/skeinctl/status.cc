#include "services/skeinctl/status.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/rpc.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

using Row = std::vector<std::string>;

const char* RoleName(v1::Role role) {
  return role == v1::ROLE_PREFILL ? "prefill" : role == v1::ROLE_DECODE ? "decode" : "unknown";
}

const char* StateName(const v1::InstanceStatus& instance) {
  if (!instance.load().invariants_ok()) return "broken";
  return instance.load().draining() ? "draining" : "serving";
}

Row RowOf(const v1::InstanceStatus& instance) {
  const v1::Load& load = instance.load();
  const v1::BlockCounts& blocks = load.blocks();
  return {
      absl::StrCat(instance.instance()),
      RoleName(instance.registration().role()),
      instance.registration().model(),
      instance.registration().device(),
      instance.registration().endpoint(),
      StateName(instance),
      absl::StrCat(load.running()),
      absl::StrCat(load.waiting()),
      absl::StrCat(load.queued_tokens()),
      absl::StrFormat("%.0f", load.tokens_per_second()),
      absl::StrCat(blocks.free(), "/", blocks.held(), "/", blocks.cached(), "/", blocks.total()),
      absl::StrFormat("%.1f s", static_cast<double>(instance.since_report_us()) * 1e-6)};
}

std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

nlohmann::ordered_json JsonOf(const v1::InstanceStatus& instance) {
  const v1::RegisterRequest& registration = instance.registration();
  const v1::Load& load = instance.load();
  nlohmann::ordered_json json;
  json["instance"] = instance.instance();
  json["role"] = RoleName(registration.role());
  json["model"] = registration.model();
  json["model_hash"] = registration.model_hash();
  json["device"] = registration.device();
  json["endpoint"] = registration.endpoint();
  json["admin_endpoint"] = registration.admin_endpoint();
  json["host"] = registration.host();
  json["pid"] = registration.pid();
  json["version"] = registration.version();
  json["state"] = StateName(instance);
  json["running"] = load.running();
  json["waiting"] = load.waiting();
  json["queued_tokens"] = load.queued_tokens();
  json["tokens_per_second"] = load.tokens_per_second();
  json["queue_s"] = instance.queue_s();
  json["freeness"] = instance.freeness();
  json["placed_requests"] = instance.placed_requests();
  json["since_report_s"] = static_cast<double>(instance.since_report_us()) * 1e-6;
  json["blocks"] = {{"free", load.blocks().free()},
                    {"held", load.blocks().held()},
                    {"cached", load.blocks().cached()},
                    {"total", load.blocks().total()}};
  return json;
}

}  // namespace

std::string StatusTable(const v1::StatusResponse& status) {
  std::vector<Row> rows = {{"INSTANCE", "ROLE", "MODEL", "DEVICE", "ENDPOINT", "STATE", "RUN",
                            "WAIT", "QUEUED", "TOK/S", "FREE/HELD/CACHED/TOTAL", "REPORTED"}};
  for (const v1::InstanceStatus& instance : status.instances()) rows.push_back(RowOf(instance));
  return absl::StrCat(
      Aligned(rows),
      absl::StrFormat(
          "\n%d instances; requests: %d assigned, %d waiting for decode, %d placed; %d submitted, "
          "%d failed; epoch %d; invariants %s\n",
          status.instances_size(), status.assigning() + status.assigned(),
          status.waiting_for_decode() + status.reserving(), status.placed(), status.submitted(),
          status.failed(), status.epoch(), status.invariants()));
}

std::string StatusJson(const v1::StatusResponse& status) {
  nlohmann::ordered_json json;
  json["version"] = status.version();
  json["uptime_s"] = static_cast<double>(status.uptime_us()) * 1e-6;
  json["epoch"] = status.epoch();
  json["invariants"] = status.invariants();
  json["requests"] = {{"assigning", status.assigning()},
                      {"assigned", status.assigned()},
                      {"waiting_for_decode", status.waiting_for_decode()},
                      {"reserving", status.reserving()},
                      {"placed", status.placed()},
                      {"submitted", status.submitted()},
                      {"failed", status.failed()}};
  json["instances_lost"] = status.instances_lost();
  json["instances"] = nlohmann::ordered_json::array();
  for (const v1::InstanceStatus& instance : status.instances()) {
    json["instances"].push_back(JsonOf(instance));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void StatusFlags::Register(FlagSet* set) {
  set->About("Show the instances, their load and their KV blocks.");
  RegisterOrchestrator(&orchestrator, set);
  set->String(&format, "format", "How to print it.").OneOf({"table", "json"}).Value("FORMAT");
}

int RunStatus(const StatusFlags& flags) {
  Channels channels;
  const auto stub = v1::Orchestrator::NewStub(channels.Get(flags.orchestrator));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::StatusResponse response;
  const grpc::Status status = stub->Status(&context, {}, &response);
  if (!status.ok()) {
    return PrintErrors(
        "skeinctl status",
        absl::UnavailableError(absl::StrCat("the orchestrator at ", flags.orchestrator,
                                            " does not answer: ", status.error_message())),
        kFailed);
  }
  std::fputs((flags.format == "json" ? StatusJson(response) : StatusTable(response)).c_str(),
             stdout);
  return 0;
}

}  // namespace skein::services
