// What a seed decides: the workload, the network's and engines' behaviour, and the faults with
// their times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/orchestrator/groups/formation_order.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/worker/group/testing/fault_point.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

// One client: what it asks and how it behaves.
struct ClientPlan {
  scheduler::SpecPtr spec;
  TimeUs arrives_us = 0;
  TimeUs leaves_us = scheduler::kNever;  // disconnects then, if not served by then
  int64_t stops_after = -1;              // a stop string is seen in this token
  bool impossible = false;               // fits nowhere: INVALID_ARGUMENT
  bool unknown_model = false;            // NOT_FOUND
  bool needs_group = false;              // fits no decode worker alone
  // Not OK: its sequence fails in the engine, alone, after so many tokens.
  absl::StatusCode poison = absl::StatusCode::kOk;
  int64_t tokens_before_poison = 0;
};

// Each step with such a request fails its engine (of several instances: that of rank 0).
inline constexpr const char* kFailsEngines = "fails engines";
inline bool FailsEngines(const scheduler::RequestSpec& spec) {
  return !spec.names.empty() && spec.names.front() == kFailsEngines;
}

// kOrderedDrain is no fault but an operator's order: it may fail no request.
enum class FaultKind {
  kCrash,
  kSlow,
  kDrain,
  kEngineFailure,
  kEngineHang,  // a step that never ends
  kOrchestratorCrash,
  kStandstill,
  kOrderedDrain,
  kRouterCrash,
  kCut,  // of what goes from one process to another
  kClockJump,
  kOtherBuild,  // a decode worker dies and comes back with blocks of another layout
  kRefusal,     // what one process opens to another is refused at once
  kStoreLoss,   // the store of the orchestrators dies, and is back with all that it had
  kGray,        // as kSlow; and in this world slow instances are judged soon (gray_worlds.h)
  kUnread,      // half of the clients do not read their answers
  kSilence,     // what a router's token stream to a decode worker carries vanishes, both ways
  kResign       // of several orchestrators the leader: it ends, and says so to the store
};

// Beside the workers, of a standstill, a cut, a refusal or a clock's jump; a router of a silence,
// of an ordered drain and of its death, too.
inline constexpr int kTheOrchestrator = -1;
inline constexpr int kTheRouter = -2;  // the first one; the others are below
constexpr int RouterAt(int number) { return kTheRouter - number; }
// Of several orchestrators, the one that leads when the fault strikes; and their store.
inline constexpr int kTheLeader = -1000;
inline constexpr int kTheStore = -1001;
constexpr int OrchestratorAt(int number) { return -2000 - number; }

struct Fault {
  FaultKind kind = FaultKind::kCrash;
  int worker = 0;  // index among the workers, or one of the above
  TimeUs at_us = 0;
  TimeUs lasts_us = 0;  // crash, resignation: comes back after; slow, standstill, ordered drain,
                        // cut, refusal, silence, other build: ends after; clock jump: forward by
                        // so much
  bool returns = true;
  int to = 0;  // of a cut, a refusal or a silence
};

// How the groups of decode workers bind and release.
struct FormationPlan {
  bool automatic = true;  // the orchestrator decides, unless `orders` pin
  // Sequences an instance; FormationPolicyConfig.
  double bind_sequences = 1;
  double release_sequences = 4;
  int64_t dwell_ms = 500;          // this one times time_scale
  int64_t shift_tokens = 4;        // steps of more run in SP
  double own_share = 0;            // GroupConfig's
  double feed_spike_chance = 0;    // a message between ranks that takes up to spike_us
  double feed_failure_chance = 0;  // communicators that cannot be made, or are gone when it binds
  // The engines can share their weights, and some of `orders` say so. So many lines of offline jobs
  // wait all the time, for an orchestrator that decides.
  bool shares = false;
  int64_t offline_lines = 0;
  int extra_blocks = 0;  // that an instance has at most while it shares
};

// An operator's order about the formation of some decode workers.
struct FormationAct {
  TimeUs at_us = 0;
  scheduler::orchestrator::FormationOrder order;  // without instances
  // Of the decode workers that are registered then, in the order of their ids; size 0: the group.
  int first = 0, size = 0;
};

// Strikes a decode worker, once, before the world heals: the first that comes to the point after so
// many have passed it (FormationWatch).
struct PointedFault {
  services::testing::FaultPoint point = services::testing::FaultPoint::kNone;
  bool kills = true;  // else it stands still until the others must have noticed, and longer
  bool lead = false;  // rank 0 of its formation is struck, else another rank
  int passes = 0;
  bool amid_handoffs = false;  // only while one is on its way to a member of the formation
  TimeUs lasts_us = 0;         // killed: it is back after; else: it stands still for so much longer
};

inline constexpr int kDecodeWorkers = 2;
inline constexpr uint64_t kRouter = 77;           // the first router's incarnation in request ids
inline constexpr uint64_t kRouterNumbers = 1000;  // between those of two routers

struct Scenario {
  uint64_t seed = 0;
  // Routers try again what was lost. Not in each world: that would hide what loses requests without
  // need.
  std::optional<bool> resumes = {};  // none: the seed says
  bool Resumes() const { return resumes.value_or(seed % 2 == 0); }
  bool faultless = false;  // no fault at all: whatever can be served must be
  bool no_excuse = false;  // what breaks is no reason for any client to get an error
  // Multiplies the processes' timeouts and leases. At 1 these are a tenth of the product's; worlds
  // whose steps take as long as the product's need more.
  int64_t time_scale = 1;
  // The network.
  TimeUs delay_min_us = 50;
  TimeUs delay_max_us = 400;
  double spike_chance = 0;  // a message that takes up to spike_us
  TimeUs spike_us = 0;
  double token_spike_chance = 0;  // likewise, of a message on a token stream alone
  double loss_chance = 0;         // of a request or a reply
  double break_chance = 0;        // of a stream, per message on it
  double link_break_chance = 0;   // of a worker's or router's stream to the orchestrator, likewise
  double half_open_chance = 0;    // of such a stream that breaks: one end hears nothing of it
  double stall_chance = 0;        // of a put
  double group_break_chance = 0;  // of a step that several instances run
  double word_loss_chance = 0;    // of the notification to other members that a group is broken
  double duplicate_chance = 0;    // of a call: executed twice
  double refusal_chance = 0;      // of a call or a server stream, by a full inbox
  double stream_refusal_chance = 0;  // of a worker's or router's new stream, likewise
  // The engines.
  bool compute_at_end = false;  // of a step's time; else at its start
  TimeUs step_us = 1000;
  int64_t slowness = 20;  // of a slow worker's steps
  TimeUs heals_us = 0;    // from then on nothing breaks
  // More than one elect a leader, in a store that is a process of its own.
  int orchestrators = 1;
  int64_t leader_lease_ms = 100;  // times time_scale
  int routers = 1;                // clients and their further choices are dealt over them
  int prefill_workers = 2;
  int prefill_nodes = 1;    // that these are on in turn
  int prefill_blocks = 28;  // of each; a long prompt may need the memory of several
  int decode_blocks = 40;
  int decode_workers = kDecodeWorkers;
  int kv_heads = 1;                   // of the model
  int max_positions = 512;            // likewise
  int64_t prefill_batch_tokens = 16;  // of a step
  uint64_t max_actions = 1'000'000;   // of the world; more are a violation
  // Each process checks its invariants at its first event, and at every so many.
  uint64_t checks_every = 1;
  // Decode workers make the communicators of their group, and bind. Empty: they never do.
  std::optional<FormationPlan> formations;
  std::vector<FormationAct> orders;
  std::optional<PointedFault> pointed;
  bool loses_generation = false;  // the orchestrator, with each crash
  // The orchestrator dies, once, when it has told the router of an engine that failed.
  bool dies_after_engine_failure = false;
  int64_t router_streams = 12;
  int64_t router_queue = 8;
  int64_t prefill_requests = 16;  // that one instance holds at a time
  int64_t decode_requests = 12;
  int64_t open_ahead = 3;
  int64_t slice_tokens = 12;
  int64_t decode_batch = 5;
  int64_t instance_lease_ms = 300;  // these four times time_scale
  int64_t writing_lease_ms = 200;
  int64_t attach_lease_ms = 300;
  int64_t place_decode_wait_ms = 400;
  int64_t request_deadline_ms = 10'000;  // of requests that ask for none, likewise
  // Decode workers take KV through so many staging buffers; 0: one-sided.
  int staging_buffers = 0;
  int32_t staging_slots = 0;
  // Plans may span instances; null: every prompt is computed by one.
  std::shared_ptr<const scheduler::PlanningConfig> planning;
  std::vector<Fault> faults;
  std::vector<ClientPlan> clients;
  std::vector<ClientPlan> probes;  // come after the healing; must be served
};

// The router that a request goes to; the choices of an answer go to the same one.
inline int RouterNumberOf(const scheduler::RequestSpec& spec, const Scenario& scenario) {
  return static_cast<int>(spec.prompt_of.value_or(spec.id).serial %
                          static_cast<uint64_t>(scenario.routers));
}
int NumberOfWorker(const std::string& endpoint);  // 12 of "prefill12"
// The node that a prefill worker says it is on.
std::string NodeOfPrefill(const Scenario& scenario, int worker);

Scenario MakeScenario(uint64_t seed);
// Three to six prefill workers under one of the orchestrator's policies and a latency model that
// the seed chooses; longer prompts, more cancels, and where there are faults a worker that dies
// every now and then.
Scenario MakeSpScenario(uint64_t seed);
// Streams of a hundred tokens whose steps take as long as those of large models, with timeouts to
// match, for half a minute; workers and the orchestrator die or stand still in their midst.
Scenario MakeLongScenario(uint64_t seed);
// Decode workers with little memory; prefill workers whose puts stall, or that pause for longer
// than their leases on granted blocks; clients that leave meanwhile. So blocks that are freed, or
// freed too early, are used again at once.
Scenario MakeSlowWritersScenario(uint64_t seed);

}  // namespace skein::sim
