// Sets the theme before anything is drawn. The button for it is in app.js.
'use strict';
try {
  const theme = localStorage.getItem('adieu-theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing shows what its settings say */ }
