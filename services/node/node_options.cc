#include "services/node/node_options.h"

#include <charconv>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/process.h"
#include "services/node/command_template.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

constexpr int64_t kInstancesMax = 64;

// "4,4" → 4 and 4.
absl::StatusOr<std::vector<int64_t>> Counts(const std::string& text) {
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, count);
    if (error != std::errc() || end != text.data() + comma || count < 1 ||
        (sum += count) > kInstancesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--instances: '", text, "' is not a number from 1 to ", kInstancesMax,
                       ", or one number per program, separated by commas, with a sum of at most ",
                       kInstancesMax));
    }
    counts.push_back(count);
    at = comma + 1;
  }
  return counts;
}

// The host at which this process reaches the instance.
std::string AdminHostOf(const std::vector<std::string>& command) {
  std::string host = FlagIn(command, "admin-host");
  if (host.empty()) host = FlagIn(command, "host");
  if (host.empty() || host == "0.0.0.0" || host == "localhost") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

absl::Status CheckAdminPort(const InstanceCommand& made, int64_t i,
                            std::map<uint16_t, int64_t>* taken) {
  if (made.admin_port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "instance ", i, ": '", FlagIn(made.command, "admin-port"),
        "' is not a valid --admin-port; give each instance its own, as in --admin-port {7500+i}"));
  }
  const auto [other, free] = taken->emplace(made.admin_port, i);
  if (free) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--admin-port: instances ", other->second, " and ",
                                                 i, " both have ", made.admin_port));
}

}  // namespace

void NodeOptions::Register(FlagSet* flags) {
  flags->Name("skein-node");
  flags->About(
      "Starts several instances of a program, one for each GPU of a pod, and restarts those "
      "that fail.\n\nskein-node --instances 8 [flags] -- prefill_worker --device "
      "cuda:{i} --admin-port {7500+i} ...\n\nThe program and its arguments follow --. {i} is "
      "the instance's number, {7500+i} and {7600+2*i} are sums. Another -- begins another "
      "program, for which --instances has another number (4,4). {i} continues and {j} "
      "restarts at 0.");
  flags->Group("Instances");
  flags->String(&instances, "instances", "Number of instances: 8; or 4,4 for two programs.")
      .Value("N[,N]")
      .Required();
  flags->Int(&min_ready, "min-ready",
             "The node is ready when this many instances are ready; 0 means all.", 0,
             kInstancesMax);
  flags->Double(&delays.first_s, "restart-delay-s",
                "Pause before a failed instance is restarted; doubled each time.", 0.01, 3600);
  flags->Double(&delays.max_s, "restart-delay-max-s",
                "Longest pause; reset once an instance ran for longer.", 0.01, 3600);
  flags->Double(&stop_grace_s, "stop-grace-s",
                "Time from SIGTERM until running instances are killed; 0 means that they are "
                "waited for.",
                0, 86400);
  flags->Group("Addresses");
  admin.host = "127.0.0.1";
  admin.Register(flags);
  tls::RegisterServiceSecurity(flags);
  RegisterLogFlags(&log_level, flags);
  flags->Check([this] { return Counts(instances).status(); });
}

absl::StatusOr<std::vector<InstanceCommand>> MakeCommands(
    const NodeOptions& options, const std::vector<std::vector<std::string>>& programs) {
  const auto counts = Counts(options.instances);
  if (!counts.ok()) return counts.status();
  if (programs.size() != counts->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--instances: '", options.instances, "' names ", counts->size(),
                     " programs, but the number of programs after -- is ", programs.size()));
  }
  std::vector<InstanceCommand> commands;
  std::map<uint16_t, int64_t> ports;
  std::string problems;
  for (size_t p = 0; p < programs.size(); ++p) {
    if (programs[p].empty()) return absl::InvalidArgumentError("a -- is not followed by a program");
    for (int64_t j = 0; j < (*counts)[p]; ++j) {
      const auto i = static_cast<int64_t>(commands.size());
      InstanceCommand made;
      for (const std::string& argument : programs[p]) {
        const auto expanded = Expand(argument, {i, j});
        if (!expanded.ok()) return expanded.status();
        made.command.push_back(*expanded);
      }
      made.admin_host = AdminHostOf(made.command);
      const std::string port = FlagIn(made.command, "admin-port");
      std::from_chars(port.data(), port.data() + port.size(), made.admin_port);
      const absl::Status checked = CheckAdminPort(made, i, &ports);
      if (!checked.ok()) {
        absl::StrAppend(&problems, problems.empty() ? "" : "\n", std::string(checked.message()));
      }
      commands.push_back(std::move(made));
    }
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems);
  const auto all = static_cast<int64_t>(commands.size());
  if (options.min_ready > all) {
    return absl::InvalidArgumentError(absl::StrCat("--min-ready: ", options.min_ready,
                                                   " exceeds the number of instances, ", all));
  }
  return commands;
}

}  // namespace skein::services
