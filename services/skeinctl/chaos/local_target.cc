#include "services/skeinctl/chaos/local_target.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/skeinctl/chaos/network_fault.h"

namespace skein::services::chaos {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kEndMax = std::chrono::seconds(120);  // a worker's grace, and more

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

uint16_t PortOf(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  uint32_t port = 0;
  return absl::SimpleAtoi(parts.back(), &port) && port <= 65535 ? static_cast<uint16_t>(port) : 0;
}

ChaosProcess ProcessOf(const std::string& role, const std::string& endpoint,
                       const std::string& process_host, int64_t pid, const ProcessNames& names,
                       const std::string& host) {
  const std::string name = names.Find(process_host, pid);
  const bool here = process_host == host;
  return {.name = name.empty() ? absl::StrCat(role, "@", endpoint) : name,
          .role = role,
          .pid = here ? pid : 0,
          .reachable = here};
}

bool IsHere(absl::string_view address, const std::string& this_host) {
  const absl::string_view host = address.substr(0, address.rfind(':'));
  return absl::StartsWith(host, "127.") || host == "localhost" || host == this_host;
}

// A standby names the leader by the address that it advertises, which may write the host otherwise.
bool AreSame(absl::string_view a, absl::string_view b, const std::string& this_host) {
  return a == b || (PortOf(std::string(a)) == PortOf(std::string(b)) && IsHere(a, this_host) &&
                    IsHere(b, this_host));
}

}  // namespace

std::vector<ChaosProcess> ProcessesOf(const v1::StatusResponse& status, const ProcessNames& names,
                                      const std::string& host) {
  std::vector<ChaosProcess> processes;
  processes.reserve(static_cast<size_t>(status.instances_size()) +
                    static_cast<size_t>(status.routers_size()));
  for (const v1::InstanceStatus& one : status.instances()) {
    const v1::RegisterRequest& told = one.registration();
    ChaosProcess process =
        ProcessOf(RoleName(told.role()), told.endpoint(), told.host(), told.pid(), names, host);
    process.running = static_cast<int64_t>(one.load().running());
    process.serving = one.serving();
    processes.push_back(std::move(process));
  }
  for (const v1::RouterStatus& one : status.routers()) {
    const v1::RouterIdentity& told = one.identity();
    ChaosProcess process =
        ProcessOf("router", told.endpoint(), told.host(), told.pid(), names, host);
    process.endpoint = told.endpoint();
    process.running = static_cast<int64_t>(one.load().running());
    process.serving = !one.draining();
    processes.push_back(std::move(process));
  }
  std::sort(processes.begin(), processes.end(),
            [](const ChaosProcess& a, const ChaosProcess& b) { return a.name < b.name; });
  return processes;
}

bool MayHaveRole(const std::vector<std::string>& arguments, const std::string& role) {
  if (arguments.empty()) return false;
  const std::string program = arguments[0].substr(
      arguments[0].rfind('/') == std::string::npos ? 0 : arguments[0].rfind('/') + 1);
  return absl::StrContains(program, role);
}

std::optional<UpProcess> StartedByUp(const std::vector<std::string>& environment) {
  for (absl::string_view one : environment) {
    if (!absl::ConsumePrefix(&one, "SKEIN_UP=")) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(one, absl::MaxSplits(' ', 1));
    return UpProcess{.name = parts.first, .restart = parts.second + "/restart"};
  }
  return std::nullopt;
}

LocalTarget::LocalTarget(std::string orchestrator, LocalOptions options,
                         std::function<ProcessNames()> names)
    : orchestrator_(std::move(orchestrator)),
      options_(std::move(options)),
      names_(std::move(names)),
      host_(HostName()) {}

absl::StatusOr<std::vector<ChaosProcess>> LocalTarget::Processes() {
  // A client of its own for each call: a connection that nobody used since the last one may be
  // dead, and a client that met a dead orchestrator tries again late.
  ClusterClient client(orchestrator_);
  const auto status = client.Status();
  if (!status.ok()) return status.status();
  const std::string leader = client.answered_by();
  const ProcessNames names = names_();
  std::vector<ChaosProcess> processes = ProcessesOf(*status, names, host_);
  // A killed process is told until its lease expires.
  std::erase_if(processes, [](const ChaosProcess& one) {
    return one.reachable && !IsAlive(static_cast<pid_t>(one.pid));
  });
  for (const v1::RouterStatus& one : status->routers()) {
    for (const ChaosProcess& process : processes) {
      if (process.role != "router" || process.pid != one.identity().pid()) continue;
      ports_[process.name] = PortOf(one.identity().endpoint());
    }
  }
  for (const absl::string_view address : absl::StrSplit(orchestrator_, '+')) {
    const uint16_t port = PortOf(std::string(address));
    // What listens at the same port of this host is another cluster's.
    const pid_t pid = IsHere(address, host_) ? ListenerOn(port) : 0;
    std::string name = names.Find(host_, pid);
    if (name.empty()) name = absl::StrCat("orchestrator@", address);
    ports_[name] = port;
    processes.push_back({.name = name,
                         .role = "orchestrator",
                         .leads = AreSame(address, leader, host_),
                         .pid = pid,
                         .serving = pid != 0,
                         .reachable = pid != 0});
  }
  return processes;
}

absl::Status LocalTarget::Allows(Fault fault) const {
  return NetworkFaultOf(fault) ? NetworkImpairment::Possible() : absl::OkStatus();
}

absl::Status LocalTarget::AllowsAbsence() const {
  if (!options_.restarts_itself) return absl::OkStatus();
  return absl::UnimplementedError("something else starts ended processes again at once");
}

absl::Status LocalTarget::Break(const ChaosProcess& process, Fault fault) {
  const auto pid = static_cast<pid_t>(process.pid);
  const auto command = CommandOf(pid);
  if (!command.ok()) return command.status();
  if (!MayHaveRole(command->arguments, process.role)) {
    return absl::FailedPreconditionError(absl::StrCat("process ", pid, " is no ", process.role,
                                                      ", but '", command->arguments[0], "'"));
  }
  if (NetworkFaultOf(fault)) return Impair(process, fault);
  const auto up = StartedByUp(command->environment);
  if (up.has_value() && fault != Fault::kStop && !options_.restarts_itself &&
      options_.restart_with.empty() && access(up->restart.c_str(), X_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        process.name, " was started by deploy/local/up, but its program '", up->restart,
        "' was not found; give --restart-with "
        "DIR/deploy/local/restart"));
  }
  commands_[process.name] = *command;
  const int signal = fault == Fault::kKill ? SIGKILL : fault == Fault::kStop ? SIGSTOP : SIGTERM;
  return Signal(pid, signal);
}

absl::Status LocalTarget::Impair(const ChaosProcess& process, Fault fault) {
  const auto processes = Processes();
  if (!processes.ok()) return processes.status();
  std::map<pid_t, Side> sides;
  for (const ChaosProcess& one : *processes) {
    if (one.pid == 0) continue;
    sides[static_cast<pid_t>(one.pid)] =
        one.role == "orchestrator" ? Side::kOrchestrator : Side::kOther;
  }
  impairment_.reset();
  auto started = NetworkImpairment::Start(*NetworkFaultOf(fault), static_cast<pid_t>(process.pid),
                                          std::move(sides));
  if (!started.ok()) return started.status();
  impairment_ = *std::move(started);
  return absl::OkStatus();
}

absl::Status LocalTarget::End(const ChaosProcess& process, Fault fault) {
  if (NetworkFaultOf(fault)) return impairment_->End();
  const auto pid = static_cast<pid_t>(process.pid);
  if (fault == Fault::kStop) return Signal(pid, SIGCONT);
  const auto until = std::chrono::steady_clock::now() + kEndMax;
  while (IsAlive(pid)) {
    if (std::chrono::steady_clock::now() > until) {
      return absl::DeadlineExceededError(
          absl::StrCat(process.name, ", pid ", pid, ", still runs after ", kEndMax.count(), " s"));
    }
    std::this_thread::sleep_for(kLook);
  }
  return absl::OkStatus();
}

absl::Status LocalTarget::Restart(const ChaosProcess& process) {
  if (options_.restarts_itself) return absl::OkStatus();
  if (!options_.restart_with.empty()) {
    return OutputOf({options_.restart_with, process.name}).status();
  }
  const auto command = commands_.find(process.name);
  if (command == commands_.end()) {
    return absl::NotFoundError(absl::StrCat(process.name, ": its command line is not known"));
  }
  if (const auto up = StartedByUp(command->second.environment); up.has_value()) {
    return OutputOf({up->restart, up->name}).status();
  }
  const auto port = ports_.find(process.name);
  return StartDetached(port == ports_.end() ? command->second
                                            : AtPort(command->second, port->second));
}

}  // namespace skein::services::chaos
