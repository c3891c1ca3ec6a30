#pragma once

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <iterator>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "raw_connection.hpp"

namespace split::soak {

/// What a process holds, as /proc says.
struct process_figures {
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    std::size_t resident_kb = 0;
    std::size_t peak_kb = 0;
};

struct http_answer {
    int status = 0;  ///< there was none
    std::string body;
};

/// A sample of a page of /metrics, by its name with labels. @throws failure if there is none
inline double sample(const std::string& page, const std::string& name) {
    const std::size_t place = page.find("\n" + name + " ");
    require(place != std::string::npos, "/metrics", "no " + name, "a value");
    return std::strtod(page.c_str() + place + name.size() + 2, nullptr);
}

/// A tensafe-server as a child: a real process, with its log taken as it comes. It dies with this one.
class server_process {
  public:
    struct options {
        std::filesystem::path state = "state";
        std::uint16_t port = 0;     ///< 0: any
        bool private_disk = false;  ///< its state on a file system of 1 MB of its own, by unshare
        bool tls = false;
        std::filesystem::path program = {};
        std::vector<std::string> arguments = {};
    };

    /// Returns when its adapters are served. @throws failure with the log if it does not
    explicit server_process(const options& how) : tls_(how.tls), state_(how.state) {
        std::filesystem::create_directories(how.state);
        std::filesystem::permissions(how.state, std::filesystem::perms::owner_all);
        std::vector<std::string> words;
        if (how.private_disk) {
            const char* const script = R"(mount -t tmpfs -o size=1024k,mode=0700 soak "$0" && exec "$@")";
            words = {"unshare", "--mount", "sh", "-c", script, how.state.string()};
        }
        words.insert(words.end(), {how.program.string(), "--listen", "127.0.0.1:" + std::to_string(how.port),
                                   "--state", how.state.string()});
        if (!how.tls) {
            words.emplace_back("--insecure-plaintext");
        }
        words.insert(words.end(), how.arguments.begin(), how.arguments.end());
        std::vector<char*> raw;
        for (std::string& word : words) {
            raw.push_back(word.data());
        }
        raw.push_back(nullptr);
        int out[2];
        int log[2];
        require(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(log, O_CLOEXEC) == 0, "pipe", std::strerror(errno),
                "two");
        process_ = ::fork();
        require(process_ >= 0, "fork", std::strerror(errno), "a process");
        if (process_ == 0) {  // only what is safe between fork and exec
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            // What this program or its parent ignores must not help the server.
            ::signal(SIGPIPE, SIG_DFL);
            ::signal(SIGXFSZ, SIG_DFL);
            ::dup2(out[1], STDOUT_FILENO);
            ::dup2(log[1], STDERR_FILENO);
            ::execvp(raw[0], raw.data());
            ::_exit(127);
        }
        ::close(out[1]);
        ::close(log[1]);
        reader_ = std::jthread([this, from = log[0]] { read_log(from); });
        std::string said;  // two lines: that it listens, and that its adapters are there
        for (char c = 0; std::ranges::count(said, '\n') < 2 && ::read(out[0], &c, 1) == 1;) {
            said += c;
        }
        ::close(out[0]);
        const std::size_t place = said.find("://127.0.0.1:");
        if (place == std::string::npos || std::ranges::count(said, '\n') < 2) {
            const int status = wait();
            throw failure("tensafe-server did not start: status " + std::to_string(status) + ": " +
                          take_log());
        }
        port_ = static_cast<std::uint16_t>(std::strtoul(said.c_str() + place + 13, nullptr, 10));
    }
    server_process(const server_process&) = delete;
    server_process& operator=(const server_process&) = delete;
    ~server_process() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
        }
    }

    endpoint where() const noexcept { return {port_, tls_}; }
    pid_t id() const noexcept { return process_; }
    /// The state folder as the server sees it, a private disk included.
    std::filesystem::path state_inside() const { return proc("root") + state_.string(); }

    void send_signal(int signal) const { ::kill(process_, signal); }

    /// Waits for its end. Its exit status, or minus the signal that killed it.
    int wait() {
        int status = 0;
        wait_until_none("the server's process", "its end",
                        [&] { return ::waitpid(process_, &status, WNOHANG) == process_ ? "" : "alive"; });
        process_ = -1;
        reader_ = {};
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

    /// What it logged since the last call. Whole lines.
    std::string take_log() {
        const std::lock_guard lock(mutex_);
        const std::size_t end = process_ < 0 ? log_.size() : log_.rfind('\n') + 1;
        std::string result = log_.substr(0, end);
        log_.erase(0, end);
        return result;
    }

    /// When nothing has come or gone for a tenth of a second: a connection that was just closed, as that of a
    /// GET, is still among the descriptors.
    process_figures quiet_figures() const {
        process_figures last = figures();
        for (int equal = 0; equal < 5;) {
            std::this_thread::sleep_for(milliseconds(20));
            const process_figures now = figures();
            equal = now.descriptors == last.descriptors && now.threads == last.threads ? equal + 1 : 0;
            last = now;
        }
        return last;
    }

    process_figures figures() const {
        process_figures result;
        const std::filesystem::directory_iterator all(proc("fd"));
        result.descriptors = static_cast<std::size_t>(std::distance(begin(all), end(all)));
        const std::map<std::string, std::size_t*> wanted{
            {"VmRSS:", &result.resident_kb}, {"VmHWM:", &result.peak_kb}, {"Threads:", &result.threads}};
        std::ifstream status(proc("status"));
        for (std::string word; status >> word;) {
            if (const auto found = wanted.find(word); found != wanted.end()) {
                status >> *found->second;
            }
        }
        return result;
    }
    /// Waits until at most so much is resident. @return what is, KB
    std::size_t wait_until_resident(std::size_t most_kb) const {
        std::size_t now = 0;
        wait_until_none("resident memory, KB", "at most " + text_of(most_kb), [&] {
            now = figures().resident_kb;
            return now <= most_kb ? std::string() : text_of(now);
        });
        return now;
    }
    /// The peak begins again at what is resident now. @return it, KB
    std::size_t forget_peak() const {
        std::ofstream(proc("clear_refs")) << "5";
        return figures().peak_kb;
    }
    void require_peak(std::size_t before_kb, std::size_t growth_mb) const {
        const std::size_t now = figures().peak_kb;
        require(now < before_kb + growth_mb * 1024, "peak memory, KB", now,
                text_of(before_kb) + " and at most " + text_of(growth_mb) + " MB more");
    }

    /// Sets how long a file may become, in bytes or "unlimited". The disk is full for who may write none.
    void limit_files(const std::string& bytes) const {
        const std::string command = "prlimit --pid " + std::to_string(process_) + " --fsize=" + bytes + ":";
        require(std::system(command.c_str()) == 0, command, "a failure", "a limit");
    }

    http_answer http(const std::string& method, const std::string& target, const std::string& token = {},
                     const std::string& body = {}) const {
        raw_connection to(where());
        if (!to.secure()) {
            return {};
        }
        std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        if (!token.empty()) {
            request += "Authorization: Bearer " + token + "\r\n";
        }
        request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
        to.send(request);
        const std::string all = to.receive_all();
        const std::size_t end = all.find("\r\n\r\n");
        return {all.starts_with("HTTP/1.1 ") ? std::atoi(all.c_str() + 9) : 0,
                end == std::string::npos ? std::string() : all.substr(end + 4)};
    }

    std::string metrics() const {
        const http_answer page = http("GET", "/metrics", admin_token());
        require_equal("/metrics", page.status, 200);
        return page.body;
    }

    std::string admin_token() const {
        std::string token;
        std::ifstream(state_inside() / "admin_token") >> token;
        return token;
    }

  private:
    std::string proc(const std::string& file) const {
        return "/proc/" + std::to_string(process_) + "/" + file;
    }
    void read_log(int from) {
        char data[4096];
        for (ssize_t got = 0; (got = ::read(from, data, sizeof(data))) > 0;) {
            const std::lock_guard lock(mutex_);
            log_.append(data, static_cast<std::size_t>(got));
        }
        ::close(from);
    }

    bool tls_;
    std::filesystem::path state_;
    pid_t process_ = -1;
    std::uint16_t port_ = 0;
    std::mutex mutex_;
    std::string log_;
    std::jthread reader_;  // ends when the child has closed its end
};

}  // namespace split::soak
