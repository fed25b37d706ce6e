#include "services/orchestrator/options.h"

#include <cstdint>

#include "services/base/process.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

void RegisterAddresses(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Addresses");
  flags->String(&options->host, "host", "Address to listen on.").Value("ADDRESS");
  flags->Int(&options->port, "port", "gRPC port; 0 takes a free one.", 0, 65535);
  flags->String(&options->port_file, "port-file",
                "File to write the gRPC port to once it is open.");
  options->admin.Register(flags);
}

void RegisterPlanning(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Planning of prefill");
  flags
      ->String(&options->profile, "profile",
               "Latency profile of the prefill instances: a built-in name (llama3-8b-a100, "
               "llama3-70b-a100-tp4) or a "
               "file that skeinctl profile or skeinctl fit wrote. Without it each prompt is "
               "computed by one instance. SIGHUP reads the file's tables (improvement rates, "
               "rolling) again.")
      .Value("PROFILE");
  flags
      ->String(&options->policy, "policy",
               "How prompts are planned with a profile: tetris, single, rolling, greedy, fixedN (N "
               "an SP size), as in skeinctl simulate; or random (chaos tests only).")
      .Value("POLICY");
  flags->Int(&options->node_size, "node-size", "Prefill instances per node.", 1, 1 << 16);
  flags
      ->String(&options->improvement_rate, "improvement-rate",
               "For tetris and single: more instances are used only if that shortens the time to "
               "first token by more than this fraction, in [0, 1). auto takes the profile's table "
               "by load, or 0.25 if it has none.")
      .Value("FRACTION");
  flags
      ->String(&options->prefill_tp, "prefill-tp",
               "How many instances of a node compute the dense part of a prompt's chunk together "
               "(TP); auto takes what is fastest by the profile's \"tensor\" rows. A number is "
               "for measuring: each chunk runs with it, or with as much of it as its instances "
               "allow.")
      .Value("SIZE")
      .OneOf({"auto", "1", "2", "4", "8"});
  flags
      ->Double(
          &options->retune_hours, "retune-hours",
          "With --improvement-rate auto: how often the table is made anew, by simulation, from "
          "the lengths and loads of the prompts that came since. It takes at least 1000 of "
          "them. 0: never.",
          0, 8760)
      .Value("HOURS");
}

void RegisterFormations(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Formations of decode groups");
  flags
      ->String(
          &options->formations, "formations",
          "Whether load, priorities, long requests and offline jobs bind and release the decode "
          "instances of a node, and have them share their weights (auto), or only skeinctl bind, "
          "share and release do (manual).")
      .OneOf({"auto", "manual"})
      .Value("MODE");
  flags->Double(
      &options->formation_bind_sequences, "formation-bind-sequences",
      "A group with at most so many sequences an instance, running and waiting, is quiet: "
      "it is bound where its profile says that it gains.",
      0, 1e6);
  flags->Double(&options->formation_release_sequences, "formation-release-sequences",
                "A group with at least so many sequences an instance is busy: it is released. "
                "Between the two it stays as it is.",
                0, 1e6);
  flags->Double(&options->formation_release_waiting_tokens, "formation-release-waiting-tokens",
                "A group for which at least so many tokens of prompts an instance are still to be "
                "computed is busy, too. From half of it on it is not quiet, and a release lets "
                "sequences end; below that it computes them anew. 0: not looked at.",
                0, 1e9);
  flags->Double(&options->formation_dwell_s, "formation-dwell-s",
                "Load changes a formation no sooner than this time after its last change.", 0,
                86400);
  flags->Double(
      &options->formation_min_gain, "formation-min-gain",
      "Only sizes that make tokens at least so many times as fast as one instance, by the "
      "profile, are bound for load or priority.",
      1, 1000);
  flags->Int(&options->formation_priority, "formation-priority",
             "A request whose priority, as in the API, is at most this is urgent (lower is more "
             "urgent): while one is there, a part of a group is bound for such requests.",
             -INT32_MAX, INT32_MAX);
  flags
      ->String(&options->formation_own, "formation-own",
               "How sequences that instances run alone fare when they are bound for load: they "
               "share the steps with the group's; they end first (sequential); likewise, but the "
               "first instance, and each other one whose own have ended, takes requests meanwhile, "
               "which the group then computes anew (soft); or they pause with their KV in place "
               "(hard). Binds for a priority have --formation-own-priority.")
      .OneOf({"share", "sequential", "soft", "hard"})
      .Value("HOW");
  flags
      ->String(&options->formation_own_priority, "formation-own-priority",
               "The same for binds for a priority. With soft and sequential, urgent requests run "
               "alone until the others have ended; where that has failed, such as because they did "
               "not end in a minute, the next bind is hard. hard serves a rare urgent request at "
               "once, but what pauses then delays those that come later.")
      .OneOf({"share", "sequential", "soft", "hard"})
      .Value("HOW");
  flags->Double(&options->formation_own_pause_s, "formation-own-pause-s",
                "In a bind that is hard, what instances run alone pauses for at most this time. "
                "Then it shares the steps with the group's. 0: it does not pause.",
                0, 86400);
  flags->Double(&options->formation_wait_s, "formation-wait-s",
                "A request that fits no instance waits this long while no group can be bound for "
                "it, such as after binds that failed. Then it ends with the reason (503).",
                0, 86400);
  flags->Double(&options->formation_share_lines, "formation-share-lines",
                "While at least so many lines of offline jobs an instance wait and its online "
                "requests are few, the instances of a group share their weights, if their engines "
                "can. 0: never.",
                0, 1e9);
  flags->Int(&options->shared_batch_threshold, "shared-batch-threshold",
             "Instances that share their weights send their rows to the owner of a layer (CaS) "
             "while their mean batch is smaller than this, and read its weights (WaS) otherwise. "
             "Where the profile has a shared_batch_threshold, that counts. 0: always WaS.",
             0, 1000000);
  flags->Double(&options->shared_mode_dwell_s, "shared-mode-dwell-s",
                "That mode does not change sooner than this time after its last change.", 0, 86400);
}

void RegisterStandbys(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Standbys");
  flags
      ->String(&options->store, "store",
               "Where the orchestrators of a cell elect the one that leads, while the others stand "
               "by: embedded is a file in --state-dir, for orchestrators of one host; etcd; none: "
               "this is the cell's only orchestrator.")
      .OneOf({"none", "embedded", "etcd"})
      .Value("STORE");
  flags->String(&options->etcd, "etcd", "Client addresses of etcd, version 3.4 or later.")
      .Value("HOST:PORT[,...]");
  flags
      ->String(&options->cell, "cell",
               "Name of the cell, the same at all its orchestrators: letters, digits, '-', '_' and "
               "'.'.")
      .Value("NAME");
  flags
      ->String(&options->advertise, "advertise",
               "Address or DNS name at which workers and routers reach this orchestrator; a "
               "standby tells them the leader's.")
      .Value("ADDRESS")
      .Default("--host");
  flags->Double(&options->leader_lease_s, "leader-lease-s",
                "A leader that the store does not hear of for this time has lost the leadership. "
                "etcd makes it whole seconds, and at least 1.5 times its own election timeout.",
                0.1, 60);
}

void RegisterLimits(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Limits and times");
  flags->Int(&options->max_requests, "max-requests", "Maximum number of requests in the cluster.",
             1, 1 << 20);
  flags
      ->String(
          &options->state_dir, "state-dir",
          "Folder for the orchestrator's generation, a number that grows with each start "
          "and fences former orchestrators. Without it, workers and routers refuse a restarted "
          "orchestrator once; it then takes a higher number and they register again. With --store "
          "the number is there.")
      .Value("FOLDER");
  flags->Double(&options->instance_lease_s, "instance-lease-s",
                "An instance that is silent for this time counts as dead.", 0.1, 3600);
  flags->Double(
      &options->instance_silent_s, "instance-silent-s",
      "The requests of an instance that is silent for this time go on at others, unless a "
      "router hears it; from two thirds of it on it gets nothing new. Not before half of "
      "--instance-lease-s, and from that lease on without effect.",
      0.1, 3600);
  flags->Double(&options->request_deadline_s, "request-deadline-s",
                "Deadline of requests that do not set one.", 0.1, 86400);
}

void RegisterSlowInstances(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Slow and hung instances");
  flags->Double(&options->slow_factor, "slow-factor",
                "An instance whose steps take at least so many times as long as those of its peers "
                "(same model, role and kind of device), beyond what its load explains, gets less. "
                "0: instances are not compared.",
                0, 1e6);
  flags->Double(&options->slow_suspect_factor, "slow-suspect-factor",
                "An instance that is at least so many times as slow as its peers gets nothing new. "
                "0: it gets less, but is never left alone.",
                0, 1e6);
  flags->Double(&options->slow_step_min_s, "slow-step-min-s",
                "An instance whose steps are shorter than this is not slow, whatever its peers do.",
                0, 3600);
  flags->Double(&options->slow_share, "slow-share",
                "At most this share of an instance's peers, but always one instance, gets nothing "
                "new for being slow at a time.",
                0, 1);
  flags->Double(&options->slow_aside_s, "slow-aside-s",
                "An instance that has been so slow for this time is set aside: its streams go on "
                "at others, and it is tried again after 1, 2, 4 ... 15 minutes.",
                0, 86400);
  flags->Double(&options->hung_step_s, "hung-step-s",
                "An instance whose step has run for this time, and 20 times as long as such steps "
                "take, hangs: its requests go on at others. For a first step it is three times "
                "this time. 0: they wait until the worker gives up (--step-timeout-s).",
                0, 86400);
}

void RegisterJobs(OrchestratorOptions* options, FlagSet* flags) {
  flags->Group("Offline jobs");
  flags
      ->String(&options->jobs_dir, "jobs-dir",
               "Folder for the files and results of offline jobs (/v1/files, /v1/batches); none: "
               "there are no jobs. Of several orchestrators of a cell the one that leads uses it, "
               "so with --store etcd it is on a volume that all of them mount.")
      .Value("FOLDER")
      .Default("jobs in --state-dir; none without one, or with --store etcd");
  flags->Int(&options->jobs_max, "jobs-max", "Maximum number of offline jobs that have not ended.",
             1, 1 << 20);
  flags
      ->Int(&options->jobs_file_mib, "jobs-file-mib", "Largest file that is taken, in MiB.", 1,
            1 << 20)
      .Value("MIB");
  flags->Int(
      &options->jobs_lines_max, "jobs-lines-max",
      "Lines of offline jobs that are computed at a time at most; fewer when online requests "
      "wait or KV blocks are short.",
      1, 1 << 20);
}

}  // namespace

void OrchestratorOptions::Register(FlagSet* flags) {
  flags->Name("orchestrator");
  flags->About("Skein's orchestrator: keeps the register of instances and plans requests.");
  RegisterAddresses(this, flags);
  RegisterPlanning(this, flags);
  RegisterFormations(this, flags);
  RegisterLimits(this, flags);
  RegisterSlowInstances(this, flags);
  RegisterStandbys(this, flags);
  RegisterJobs(this, flags);
  tracing.Register(flags);
  tls::RegisterServiceSecurity(flags);
  RegisterLogFlags(&log_level, flags);
}

}  // namespace skein::services
