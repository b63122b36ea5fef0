/* Asks the kernel for every call by its number, with arguments no call can use, and tells how it is answered:
   "none" (no such call), "no" (not permitted) or "yes" (it got as far as its arguments, or further).
   A child makes each call, as some end or block whoever makes them. */
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    for (long number = 0; number < 470; number++) {
        /* These make a copy that would go on with the list. */
#ifdef SYS_fork
        if (number == SYS_fork || number == SYS_vfork) continue;
#endif
        pid_t child = fork();
        if (child == 0) {
            struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
            setitimer(ITIMER_REAL, &soon, NULL);
            errno = 0;
            syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
            int answer = errno;
            syscall(SYS_exit_group, answer == ENOSYS ? 1 : answer == EPERM ? 2 : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        printf("%ld %s\n", number, code == 1 ? "none" : code == 2 ? "no" : "yes");
    }
    return 0;
}
