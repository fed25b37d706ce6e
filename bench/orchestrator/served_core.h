// ServedCore: an OrchestratorCore with the codec and the numbering of streams that
// OrchestratorShell puts around it, from the bytes of a message to the bytes of all that follows
// from it, and the time that each part takes. No network: who calls it has the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/rpc/message_counters.h"

namespace skein::bench {

class ServedCore {
 public:
  enum Part { kDecode, kStream, kCore, kEncode };
  static constexpr size_t kParts = kEncode + 1;
  // A message that is to be sent.
  struct Out {
    uint64_t stream = 0;
    std::string bytes;
  };

  // `cpu_clock`: parts are measured by the thread's processor time, which costs more itself. For a
  // machine that has other work.
  ServedCore(const scheduler::OrchestratorConfig& config, bool cpu_clock)
      : core_(config), cpu_clock_(cpu_clock) {}

  // A stream of a worker or router begins.
  void Open(uint64_t stream) { peers_.try_emplace(stream, stream); }
  // A WorkerMessage or RouterMessage on it. Nothing may be refused, nor a request fail.
  std::vector<Out> FromWorker(uint64_t stream, const std::string& bytes, scheduler::TimeUs now);
  std::vector<Out> FromRouter(uint64_t stream, const std::string& bytes, scheduler::TimeUs now);
  void Tick(scheduler::TimeUs now);

  scheduler::OrchestratorCore& core() { return core_; }
  const std::array<double, kParts>& seconds() const { return seconds_; }
  double worker_bytes() const { return worker_bytes_; }
  double report_bytes() const { return report_bytes_; }
  double sent_bytes() const { return sent_bytes_; }
  void Forget();  // the times and bytes so far

 private:
  struct Peer {
    explicit Peer(uint64_t session) : counters(session) {}
    services::MessageCounters counters;
    scheduler::InstanceId instance;  // of a worker
  };

  void Handle(const scheduler::OrchestratorEvent& event, scheduler::TimeUs now,
              std::vector<Out>* out);
  template <class Message>
  void Send(uint64_t stream, Message message, std::vector<Out>* out);
  double NowSeconds() const;
  void Lap(Part part);  // the time since the last lap

  scheduler::OrchestratorCore core_;
  const bool cpu_clock_;
  std::map<uint64_t, Peer> peers_;
  std::map<scheduler::InstanceId, uint64_t> workers_;  // their streams
  std::map<uint64_t, uint64_t> routers_;
  std::array<double, kParts> seconds_ = {};
  double lap_s_ = 0;
  double worker_bytes_ = 0;
  double report_bytes_ = 0;
  double sent_bytes_ = 0;
};

}  // namespace skein::bench
