// Processes are found, broken and started again; pods are read from kubectl's list.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "services/base/file.h"
#include "services/skeinctl/chaos/kubernetes_target.h"
#include "services/skeinctl/chaos/local_process.h"
#include "services/skeinctl/chaos/local_target.h"

namespace skein::services::chaos {
namespace {

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder == nullptr ? "/tmp" : folder;
}

TEST(LocalProcess, OwnCommandIsKnown) {
  const auto command = CommandOf(getpid());
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->folder, std::filesystem::current_path().string());
  EXPECT_TRUE(std::filesystem::exists(command->program)) << command->program;
  ASSERT_FALSE(command->arguments.empty());
  EXPECT_NE(command->arguments[0].find("targets_test"), std::string::npos);
}

TEST(LocalProcess, AnEndedChildDoesNotLiveThoughItHasItsNumberStill) {
  EXPECT_TRUE(IsAlive(getpid()));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(IsAlive(child));
  EXPECT_TRUE(Signal(child, SIGKILL).ok());
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(kill(child, 0), 0) << "nobody has noticed its end";
  EXPECT_FALSE(IsAlive(child));
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Signal(child, SIGTERM).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Signal(1, SIGTERM).code(), absl::StatusCode::kNotFound) << "init is no target";
}

// As when a process is killed: its threads end one after another.
TEST(LocalProcess, OneWhoseFirstThreadHasEndedLivesWhileOthersRun) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::thread([pid = getpid(), to = told[1]] {
      while (ReadFile("/proc/" + std::to_string(pid) + "/stat")->find(") Z ") == std::string::npos)
        std::this_thread::yield();
      if (write(to, "z", 1) == 1) pause();
      _exit(1);
    }).detach();
    syscall(SYS_exit, 0);  // of this thread
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  EXPECT_TRUE(IsAlive(child));
  EXPECT_TRUE(Signal(child, SIGKILL).ok());
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(IsAlive(child));
  close(told[0]);
  close(told[1]);
}

TEST(LocalProcess, TheListenerOfAPortIsFound) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  EXPECT_EQ(ListenerOn(port), 0) << "bound, but it does not listen";
  ASSERT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(ListenerOn(port), getpid());
  close(listener);
}

TEST(LocalProcess, AChosenPortIsKept) {
  const ProcessCommand command{
      .program = "/bin/router",
      .arguments = {"router", "--port=0", "--port-file=/p", "--port", "0", "--admin-port=0"},
      .environment = {},
      .folder = "/",
      .output = "",
      .errors = ""};
  EXPECT_EQ(AtPort(command, 8000).arguments,
            (std::vector<std::string>{"router", "--port=8000", "--port-file=/p", "--port", "8000",
                                      "--admin-port=0"}));
}

// A pipe in the file system tells when the started process has written, without a wait for time.
TEST(LocalProcess, StartsWithFolderArgumentsAndEnvironment) {
  const std::string pipe = Folder() + "/started";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ProcessCommand command{
      .program = "/bin/sh",
      .arguments = {"named", "-c", "echo \"$PWD $WORD $0\" > " + pipe, "zero"},
      .environment = {"WORD=word"},
      .folder = "/usr",
      .output = "",
      .errors = ""};
  ASSERT_TRUE(StartDetached(command).ok());
  const auto text = ReadFile(pipe);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "/usr word zero\n");
  std::filesystem::remove(pipe);
  ProcessCommand missing = command;
  missing.program = "/nowhere/sh";
  EXPECT_EQ(StartDetached(missing).message(),
            "/nowhere/sh cannot be started: No such file or directory");
}

TEST(LocalProcess, OutputOfAProgramOrItsLastError) {
  const auto output = OutputOf({"sh", "-c", "echo one; echo two >&2"});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "one\n");
  EXPECT_EQ(OutputOf({"sh", "-c", "echo first >&2; echo last >&2; exit 3"}).status(),
            absl::FailedPreconditionError("sh failed: last"));
  EXPECT_EQ(OutputOf({"no-such-program"}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(LocalTarget, ProcessesOfOtherHostsAreListedAndLeftAlone) {
  v1::StatusResponse status;
  const auto add = [&](v1::Role role, const char* host, int64_t pid, uint64_t running) {
    v1::InstanceStatus* one = status.add_instances();
    one->mutable_registration()->set_role(role);
    one->mutable_registration()->set_host(host);
    one->mutable_registration()->set_pid(pid);
    one->mutable_registration()->set_endpoint("h:" + std::to_string(pid));
    one->mutable_load()->set_running(running);
    one->set_serving(true);
  };
  add(v1::ROLE_PREFILL, "here", 11, 1);
  add(v1::ROLE_DECODE, "there", 12, 2);
  v1::RouterStatus* router = status.add_routers();
  router->mutable_identity()->set_host("here");
  router->mutable_identity()->set_pid(13);
  router->mutable_identity()->set_endpoint("h:13");
  router->set_draining(true);
  const ProcessNames names(
      {.orchestrator = "",
       .url = "",
       .run_dir = "",
       .processes = {{.name = "prefill-0", .role = "prefill", .pid = 11, .log = "", .admin = ""}}},
      "here");
  const auto processes = ProcessesOf(status, names, "here");
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[0].name, "decode@h:12");
  EXPECT_FALSE(processes[0].reachable);
  EXPECT_EQ(processes[0].pid, 0);
  EXPECT_EQ(processes[1].name, "prefill-0");
  EXPECT_EQ(processes[1].pid, 11);
  EXPECT_EQ(processes[1].running, 1);
  EXPECT_TRUE(processes[1].serving && processes[1].reachable);
  EXPECT_EQ(processes[2].name, "router@h:13");
  EXPECT_FALSE(processes[2].serving) << "it drains";
}

TEST(LocalTarget, UpTellsItsProcessesHowTheyAreStartedAgain) {
  const auto up = StartedByUp({"HOME=/h", "SKEIN_UP=decode-1 /run dir"});
  ASSERT_TRUE(up.has_value());
  EXPECT_EQ(up->name, "decode-1");
  EXPECT_EQ(up->restart, "/run dir/restart");
  EXPECT_FALSE(StartedByUp({"HOME=/h", "NOT_SKEIN_UP=a b"}).has_value());
}

TEST(LocalTarget, AnotherProgramWithTheNumberIsNoTarget) {
  EXPECT_TRUE(MayHaveRole({"/usr/bin/skein-decode-worker", "--port=1"}, "decode"));
  EXPECT_TRUE(MayHaveRole({"router"}, "router"));
  EXPECT_FALSE(MayHaveRole({"/home/decode/bin/editor"}, "decode"));
  EXPECT_FALSE(MayHaveRole({}, "decode"));
}

TEST(KubernetesTarget, PodsHaveRolesAndAreReadyOrNot) {
  const auto pods = PodsOf(R"({"items": [
      {"metadata": {"name": "prefill-0", "labels": {"app.kubernetes.io/component": "prefill"}},
       "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
      {"metadata": {"name": "decode-0", "labels": {"app.kubernetes.io/component": "decode"},
                    "deletionTimestamp": "2026-01-01T00:00:00Z"},
       "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
      {"metadata": {"name": "router-x", "labels": {"app.kubernetes.io/component": "router"}},
       "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
      {"metadata": {"name": "node-0", "labels": {"app.kubernetes.io/component": "node"}}},
      {"metadata": {"name": "new", "labels": {"app.kubernetes.io/component": "router"}}}]})");
  ASSERT_TRUE(pods.ok()) << pods.status();
  ASSERT_EQ(pods->size(), 4U) << "the pod of skein-node is left out";
  EXPECT_EQ(pods->at(0).name, "decode-0");
  EXPECT_FALSE(pods->at(0).serving) << "it is being deleted";
  EXPECT_EQ(pods->at(1).name, "new");
  EXPECT_FALSE(pods->at(1).serving) << "it has no conditions yet";
  EXPECT_TRUE(pods->at(2).serving);
  EXPECT_EQ(pods->at(2).role, "prefill");
  EXPECT_FALSE(pods->at(3).serving);
  EXPECT_FALSE(PodsOf("error: no such thing").ok());
}

// A kubectl that notes its arguments.
TEST(KubernetesTarget, AKillIsADeletionWithoutGraceAndNothingCanBeStopped) {
  const std::string notes = Folder() + "/kubectl-notes";
  const std::string kubectl = Folder() + "/kubectl";
  std::filesystem::remove(notes);
  ASSERT_TRUE(WriteFile(kubectl, "#!/bin/sh\necho \"$@\" >>'" + notes + "'\n").ok());
  std::filesystem::permissions(kubectl, std::filesystem::perms::owner_all);
  KubernetesTarget target({.kubectl = kubectl, .kubeconfig = "/k", .name_space = "n"});
  EXPECT_TRUE(target.Break({.name = "decode-0", .role = "decode"}, Fault::kKill).ok());
  EXPECT_TRUE(target.Break({.name = "decode-0", .role = "decode"}, Fault::kTerm).ok());
  const std::string every = "--kubeconfig=/k --namespace=n --request-timeout=20s ";
  const std::string uid =
      every + "get pod decode-0 --ignore-not-found --output=jsonpath={.metadata.uid}\n";
  EXPECT_EQ(*ReadFile(notes), uid + every +
                                  "delete pod decode-0 --wait=false --grace-period=0 --force\n" +
                                  uid + every + "delete pod decode-0 --wait=false\n");
  EXPECT_EQ(target.Allows(Fault::kStop).code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(target.Allows(Fault::kKill).ok());
  EXPECT_EQ(target.AllowsAbsence().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace skein::services::chaos
