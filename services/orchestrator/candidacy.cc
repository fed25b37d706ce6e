#include "services/orchestrator/candidacy.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"
#include "services/store/embedded_store.h"
#include "services/store/etcd_calls.h"
#include "services/store/etcd_store.h"

namespace skein::services {
namespace {

constexpr int64_t kResignUs = 1'000'000;

Election::Options ElectionOptions(const OrchestratorOptions& options, uint64_t incarnation,
                                  int port) {
  const std::string& host = options.advertise.empty() ? options.host : options.advertise;
  return {.cell = options.cell,
          .endpoint = absl::StrCat(host, ":", port),
          .incarnation = incarnation,
          .lease_us = static_cast<int64_t>(options.leader_lease_s * 1e6)};
}

}  // namespace

absl::Status CheckCandidacy(const OrchestratorOptions& options) {
  if (options.store == "none") return absl::OkStatus();
  if (options.store == "embedded" && options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "--store: embedded is a file in --state-dir; give that folder");
  }
  if (options.advertise.empty() && (options.host == "0.0.0.0" || options.host == "[::]" ||
                                    options.host == "::" || options.host.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host: '", options.host,
                     "' is a wildcard address; a standby could not tell workers and routers where "
                     "the leader is. Set --advertise"));
  }
  if (options.store == "etcd") {
    const auto endpoints = ParseEtcdEndpoints(options.etcd);
    if (!endpoints.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--etcd: ", std::string(endpoints.status().message())));
    }
  }
  const absl::Status options_fit = Election::Check(ElectionOptions(options, 1, 1));
  if (options_fit.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--store: ", std::string(options_fit.message())));
}

absl::StatusOr<std::unique_ptr<Candidacy>> Candidacy::Open(const OrchestratorOptions& options) {
  std::unique_ptr<ClusterStore> store;
  if (options.store == "etcd") {
    auto endpoints = ParseEtcdEndpoints(options.etcd);
    if (!endpoints.ok()) return endpoints.status();
    store = std::make_unique<EtcdStore>(*std::move(endpoints));
  } else {
    auto embedded = EmbeddedStore::Open({.folder = options.state_dir});
    if (!embedded.ok()) return embedded.status();
    store = *std::move(embedded);
  }
  return std::unique_ptr<Candidacy>(new Candidacy(options, std::move(store)));
}

Candidacy::Candidacy(const OrchestratorOptions& options, std::unique_ptr<ClusterStore> store)
    : options_(options), store_(std::move(store)) {}

Candidacy::~Candidacy() { End(); }

void Candidacy::End() {
  election_.reset();  // its hooks use running_
  running_.store(nullptr);
}

absl::Status Candidacy::Campaign(OrchestratorShell* shell, uint64_t incarnation, int port) {
  shell_ = shell;
  Election::Options options = ElectionOptions(options_, incarnation, port);
  if (absl::Status fit = Election::Check(options); !fit.ok()) return fit;
  LogInfo("standing by",
          {{"cell", options_.cell}, {"store", options_.store}, {"endpoint", options.endpoint}});
  election_ = std::make_unique<Election>(
      store_.get(), std::move(options),
      Election::Hooks{
          .led = [this](uint64_t generation) { Led(generation); },
          .lost = [this](const absl::Status& why) { Lost(why); },
          .leader_is = [this](const std::optional<CellLeader>& leader) { LeaderIs(leader); },
          .store =
              [](const absl::Status& status) {
                if (status.ok()) return LogInfo("the store answers again");
                LogWarning("the store fails", {{"reason", std::string(status.message())}});
              }});
  running_.store(election_.get());
  running_.notify_all();
  return absl::OkStatus();
}

void Candidacy::Resign() {
  if (election_ == nullptr) return;
  const absl::Status told = election_->Resign(kResignUs);
  if (told.ok()) return;
  LogWarning("the next leader has to wait for the lease's end",
             {{"reason", std::string(told.message())}});
}

bool Candidacy::Leads() const {
  const Election* election = running_.load();
  return election != nullptr && election->Leads();
}

double Candidacy::LeaseLeftS() const {
  const Election* election = running_.load();
  return election != nullptr ? election->LeaseLeftS() : 0;
}

void Candidacy::Raise(uint64_t generation) {
  Election* election = running_.load();
  if (election != nullptr) election->Raise(generation);
}

void Candidacy::StepAside() {
  Election* election = running_.load();
  if (election != nullptr) election->StepAside();
}

void Candidacy::Heard() {
  Election* election = running_.load();
  if (election != nullptr) election->Heard();
}

void Candidacy::Led(uint64_t generation) {
  running_.wait(nullptr);  // the shell asks Leads
  shell_->Lead(generation);
  LogInfo("leading", {{"cell", options_.cell}, {"generation", generation}});
}

void Candidacy::Lost(const absl::Status& why) {
  shell_->StepDown("this orchestrator does not lead any more");
  if (why.ok()) return LogInfo("resigned", {{"cell", options_.cell}});
  LogWarning("standing by: the leadership is lost",
             {{"cell", options_.cell}, {"reason", std::string(why.message())}});
}

void Candidacy::LeaderIs(const std::optional<CellLeader>& leader) {
  shell_->Follow(leader.has_value() ? leader->endpoint : "");
  if (!leader.has_value()) return;
  LogInfo("another orchestrator leads", {{"cell", options_.cell},
                                         {"endpoint", leader->endpoint},
                                         {"generation", leader->generation}});
}

}  // namespace skein::services
