#include "services/skeinctl/terminal/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::services {
namespace {

volatile sig_atomic_t stop_signalled = 0;

void OnStopSignal(int) { stop_signalled = 1; }

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

winsize TerminalSize() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return known ? size : winsize{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
}

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// At most `columns` whole characters; colour codes have no width and end with the line.
std::string Cut(absl::string_view line, int columns) {
  size_t end = 0;
  bool colored = false;
  for (int shown = 0; end < line.size() && shown < columns;) {
    if (line[end] == '\x1b') {
      colored = true;
      end = std::min(line.find('m', end), line.size() - 1) + 1;
      continue;
    }
    ++shown;
    ++end;
    while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) ++end;
  }
  return absl::StrCat(line.substr(0, end), colored ? "\x1b[0m" : "");
}

}  // namespace

bool IsTerminal() { return isatty(STDOUT_FILENO) == 1 && Environment("TERM") != "dumb"; }

bool MayColor() { return IsTerminal() && Environment("NO_COLOR").empty(); }

void CatchStopSignals() {
  struct sigaction action {};
  action.sa_handler = OnStopSignal;  // without SA_RESTART, so that waits end
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // nohup: the process is to outlive its terminal.
    const bool ignored = signal == SIGHUP && before.sa_handler == SIG_IGN;
    if (!ignored) sigaction(signal, &action, nullptr);
  }
}

bool StopSignalled() { return stop_signalled != 0; }

// Waits in short pieces: a signal just before a wait must end it, too.
void WaitUnlessStopped(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!StopSignalled() && std::chrono::steady_clock::now() < end) {
    poll(nullptr, 0, static_cast<int>(std::min<int64_t>(100, time.count())));
  }
}

Screen::Screen() {
  if (isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  WriteAll("\x1b[?1049h\x1b[?25l");  // the alternate screen, cursor hidden
}

Screen::~Screen() {
  WriteAll("\x1b[?25h\x1b[?1049l");
  if (raw_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

int Screen::columns() const { return TerminalSize().ws_col; }

void Screen::Draw(const std::string& text) {
  const winsize size = TerminalSize();
  WriteAll(Frame(text, size.ws_row, size.ws_col));
}

char Screen::AwaitKey(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!StopSignalled() && std::chrono::steady_clock::now() < end) {
    if (!raw_) {
      WaitUnlessStopped(time);
      return 0;
    }
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    char key = 0;
    if (poll(&input, 1, 100) > 0 && ::read(STDIN_FILENO, &key, 1) == 1) return key;
    if ((input.revents & (POLLHUP | POLLERR)) != 0) return 'q';
  }
  return 0;
}

std::string Frame(const std::string& text, int rows, int columns) {
  std::string frame = "\x1b[H";
  int row = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (row == rows) break;
    absl::StrAppend(&frame, row > 0 ? "\r\n" : "", Cut(line, columns), "\x1b[K");
    ++row;
  }
  return frame + "\x1b[J";
}

}  // namespace skein::services
